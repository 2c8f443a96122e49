#!/usr/bin/env bash
# redis-py#818, laravel/horizon#1738: SETNX, then EXPIRE; a crash between the two leaves a lock for ever.
# A command: bash tests/broken/setnx_then_expire.sh. Needs nothing but bash: both servers are spoken to over /dev/tcp.
set -eu

address=${REDIS_URL#redis://}
exec 3<>"/dev/tcp/${address%%:*}/$(sed -E 's|.*:([0-9]+)/.*|\1|' <<<"$address")"

redis() { # one command; its answer is in $answer, empty for nil
  local request=*$#$'\r\n' word
  for word in "$@"; do request+=\$${#word}$'\r\n'$word$'\r\n'; done
  printf %s "$request" >&3
  IFS= read -r answer <&3
  answer=${answer%$'\r'}
  case $answer in
    '$-1') answer='' ;;
    '$'*) IFS= read -r answer <&3; answer=${answer%$'\r'} ;;
    *) answer=${answer:1} ;;
  esac
}

charge() { # the id of the charge is in $answer
  local processor=${PROCESSOR_URL#http://} body
  body=$(printf '{"customer":"%s","invoice":"%s","amount":%d,"currency":"%s"}' \
    "$CUSTOMER_ID" "$INVOICE_ID" "$AMOUNT" "$CURRENCY")
  exec 4<>"/dev/tcp/${processor%%:*}/${processor##*:}"
  printf 'POST /v1/charges HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
    "$processor" "${#body}" "$body" >&4
  answer=$(sed -nE 's/.*"id": ?"([^"]+)".*/\1/p' <&4)
  [ -n "$answer" ]
}

pause=$(printf '%d.%03d' $((LOCK_TTL_MS / 12000)) $((LOCK_TTL_MS / 12 % 1000)))
lock=lock:$CUSTOMER_ID owner=$$-$RANDOM$RANDOM paid=paid:$INVOICE_ID
redis SELECT "${address##*/}"
for ((tries = 0; ; tries++)); do
  redis SETNX "$lock" "$owner"
  [ "$answer" = 1 ] && break
  [ $tries -lt 96 ] || exit 75
  sleep "$pause"
done
redis PEXPIRE "$lock" "$LOCK_TTL_MS"
redis GET "$paid"
if [ -z "$answer" ]; then
  charge
  redis SET "$paid" "$answer"
fi
redis EVAL 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0' 1 "$lock" "$owner"
