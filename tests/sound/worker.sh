#!/usr/bin/env bash
# A worker in shell: an idempotency key made from the invoice; both servers are spoken to over /dev/tcp.
# A command: bash tests/sound/worker.sh
set -eu

address=${REDIS_URL#redis://} hostport=${PROCESSOR_URL#http://}
exec 3<>"/dev/tcp/${address%%:*}/$(sed -E 's|.*:([0-9]+)/.*|\1|' <<<"$address")"

redis() { # one command in the protocol's own words; the first line of the answer is in $answer
  local request=*$#$'\r\n' word
  for word in "$@"; do request+=\$${#word}$'\r\n'$word$'\r\n'; done
  printf %s "$request" >&3
  IFS= read -r answer <&3 || exit 1
  answer=${answer%$'\r'}
}

post() { # the status of POST /v1/charges is printed
  exec 4<>"/dev/tcp/${hostport%%:*}/${hostport##*:}"
  printf 'POST /v1/charges HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nIdempotency-Key: sh-%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
    "$hostport" "$INVOICE_ID" "${#1}" "$1" >&4
  local version status rest
  read -r version status rest <&4 && cat <&4 >/dev/null
  echo "$status"
}

redis SELECT "${address##*/}"
lock=sh-lock:$CUSTOMER_ID owner=$$-$RANDOM-$RANDOM-$RANDOM
pause=$(printf '%d.%03d' $((LOCK_TTL_MS / 12000)) $((LOCK_TTL_MS / 12 % 1000)))
for ((tries = 0; ; tries++)); do
  redis SET "$lock" "$owner" NX PX "$LOCK_TTL_MS"
  [ "$answer" = +OK ] && break
  [ $tries -lt 96 ] || exit 75
  sleep "$pause"
done
body=$(printf '{"customer":"%s","invoice":"%s","amount":%d,"currency":"%s"}' "$CUSTOMER_ID" "$INVOICE_ID" "$AMOUNT" "$CURRENCY")
redis EXISTS "sh-paid:$INVOICE_ID"
if [ "$answer" = :0 ]; then
  while status=$(post "$body"); [ "$status" = 409 ]; do sleep "$pause"; done
  [ "$status" -lt 300 ]
  redis SET "sh-paid:$INVOICE_ID" 1
fi
redis EVAL 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0' 1 "$lock" "$owner"
