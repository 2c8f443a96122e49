"""A subject of a real run that prints whatever could break out of a report, and charges twice under a naive lock.

pytest scenarios/ --harness-subject tests.report.hostile_subject:charge_invoice -k "slow_charge and before-commit"
"""

from __future__ import annotations

import sys

from harness.subject import Job, say
from harness.variants import naive_ttl

LINES = (
    "</pre></details></script><script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m \x07bell \x00nul \x9bcsi \x7fdel",
    "::error file=forged.py,line=1::forged annotation",
    "safe \u202egnp.exe\u202c \u2066isolate\u2069 \u200bzero\u200f width",
    "\u2028line\u2029paragraph \U000e0041tag",
    "`|*_{}[]()#!<b>@everyone ${{ secrets.X }} ]]> <!-- --> &lt;",
    "x" * 30_000,
    "\u0639\u0631\u0628\u064a " * 2_000,
)


class Hostile(Exception):
    """Its message ends up in the log, as every worker's last words do."""


def charge_invoice(job: Job) -> None:
    """naive-ttl's job, between lines of every kind on both outputs; it fails when all is done."""
    for line in LINES:
        sys.stdout.write(f"{line}\n")
        sys.stderr.write(f"{line}\r\n")
        say(line[:60], **{line[:40]: line, "nested": {"<b>": [line[:99]]}})
    sys.stdout.buffer.write(b"not UTF-8: \xff\xfe\xc3\x28 \xed\xa0\x80\n")
    sys.stdout.flush()
    naive_ttl.run(job)
    raise Hostile("".join(LINES))
