# The fake payment processor as fakes/processor/Dockerfile builds it, on Debian's Python and wheels fetched beforehand.
ARG BASE
FROM ${BASE}
ENV PYTHONPATH=/srv:/srv/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY packages /srv/packages
COPY fakes /srv/fakes
RUN install -d -o www-data -g www-data /ledger
USER www-data
WORKDIR /srv
ENTRYPOINT ["python3", "-m", "fakes.processor"]
