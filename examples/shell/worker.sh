#!/usr/bin/env bash
# A billing worker in bash alone (it speaks to both servers over /dev/tcp): SET NX PX, and nothing behind it.
#
#     pytest scenarios/ --harness-worker "bash examples/shell/worker.sh" -k "slow_charge and before-commit"
set -eu

address=${REDIS_URL#redis://}
host=${address%%:*} port=${address#*:}
exec 3<>"/dev/tcp/$host/${port%%/*}"

redis() { # runs one command; its answer is in $answer, empty for nil
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

charge() { # charges the invoice; the charge's id is in $answer
  local processor=${PROCESSOR_URL#http://} body line
  body=$(printf '{"customer":"%s","invoice":"%s","amount":%d,"currency":"%s"}' \
    "$CUSTOMER_ID" "$INVOICE_ID" "$AMOUNT" "$CURRENCY")
  exec 4<>"/dev/tcp/${processor%%:*}/${processor##*:}"
  printf 'POST /v1/charges HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
    "$processor" "${#body}" "$body" >&4
  answer=''
  while IFS= read -r line <&4 || [ -n "$line" ]; do
    [[ $line =~ \"id\":\ ?\"([^\"]+)\" ]] && answer=${BASH_REMATCH[1]}
  done
  [ -n "$answer" ]
}

pause=$(printf '%d.%03d' $((LOCK_TTL_MS / 12000)) $((LOCK_TTL_MS / 12 % 1000)))
lock=lock:$CUSTOMER_ID owner=$$-$RANDOM$RANDOM paid=paid:$INVOICE_ID
redis SELECT "${address##*/}"
for ((tries = 0; ; tries++)); do
  redis SET "$lock" "$owner" NX PX "$LOCK_TTL_MS"
  [ "$answer" = OK ] && break
  [ "$tries" -lt 96 ] || exit 75 # gave up waiting: the queue delivers again
  sleep "$pause"
done
redis GET "$paid"
if [ -z "$answer" ]; then
  charge
  redis SET "$paid" "$answer"
fi
redis EVAL 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0' 1 "$lock" "$owner"
