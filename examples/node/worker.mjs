// A billing worker in Node: a Redis lock, and a charge whose idempotency key is made from the invoice. No npm package.
//
//     pytest scenarios/ --harness-worker "node examples/node/worker.mjs" -k "slow_charge and before-commit"
import { randomUUID } from "node:crypto";
import http from "node:http";
import net from "node:net";

const { REDIS_URL, PROCESSOR_URL, CUSTOMER_ID: customer, INVOICE_ID: invoice, AMOUNT, CURRENCY: currency } = process.env;
const leaseMs = Number(process.env.LOCK_TTL_MS);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A Redis connection: command("GET", "k") resolves to a string, a number or null. */
async function connect(url) {
  const socket = net.connect(Number(url.port), url.hostname).setNoDelay();
  const waiting = [];
  let buffered = "";
  socket.on("data", (data) => {
    buffered += data.toString("latin1");
    for (let end; waiting.length && (end = buffered.indexOf("\r\n")) >= 0; ) {
      const [kind, head] = [buffered[0], buffered.slice(1, end)];
      let [value, used] = [kind === ":" ? Number(head) : head, end + 2];
      if (kind === "$") {
        value = head === "-1" ? null : buffered.slice(used, used + Number(head));
        if (value !== null) used += Number(head) + 2;
        if (buffered.length < used) return;
      }
      buffered = buffered.slice(used);
      const { resolve, reject } = waiting.shift();
      kind === "-" ? reject(new Error(head)) : resolve(value);
    }
  });
  const lost = () => waiting.splice(0).forEach(({ reject }) => reject(new Error("the connection to Redis was lost")));
  socket.on("error", lost).on("close", lost);
  const command = (...words) =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      const bulks = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
      socket.write(`*${words.length}\r\n${bulks.join("")}`);
    });
  await command("SELECT", url.pathname.slice(1));
  return { command, close: () => socket.end() };
}

/** Charges the invoice; resolves to {status, body}, rejects when the outcome is unknown. */
function postCharge() {
  const body = JSON.stringify({ customer, invoice, amount: Number(AMOUNT), currency });
  const headers = {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(body),
    "Idempotency-Key": `charge-${invoice}`,
  };
  return new Promise((resolve, reject) => {
    const request = http.request(new URL("/v1/charges", PROCESSOR_URL), { method: "POST", headers }, (answer) => {
      let text = "";
      answer.on("data", (data) => (text += data));
      answer.on("end", () => resolve({ status: answer.statusCode, body: JSON.parse(text) }));
      answer.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
  });
}

const redis = await connect(new URL(REDIS_URL));
const [lock, owner, paid] = [`lock:${customer}`, randomUUID(), `paid:${invoice}`];
const RELEASE = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0';

const deadline = performance.now() + 8 * leaseMs;
while ((await redis.command("SET", lock, owner, "NX", "PX", leaseMs)) === null) {
  if (performance.now() > deadline) process.exit(75); // gave up waiting: the queue delivers again
  await sleep(leaseMs / 12);
}
console.log(JSON.stringify({ event: "acquired", owner }));
try {
  if ((await redis.command("GET", paid)) === null) {
    let answer = await postCharge();
    while (answer.status === 409 && answer.body.error.code === "idempotency_key_in_use") {
      await sleep(leaseMs / 12);
      answer = await postCharge();
    }
    if (answer.status > 201) throw new Error(`the processor said no: ${JSON.stringify(answer.body.error)}`);
    await redis.command("SET", paid, answer.body.id);
  }
} finally {
  await redis.command("EVAL", RELEASE, 1, lock, owner);
  redis.close();
}
