// A worker in Node: a renewed lock, a keep-alive agent, and an idempotency key made from the invoice.
// A command: node tests/sound/worker.mjs
import { randomUUID } from "node:crypto";
import http from "node:http";
import { connect, invoiceBody, job, request, sleep } from "../broken/redis.mjs";

const EXTEND = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("PEXPIRE", KEYS[1], ARGV[2]) or 0';
const RELEASE = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0';

const redis = await connect();
const agent = new http.Agent({ keepAlive: true });
const [lock, owner, paid] = [`node-lock:${job.customer}`, randomUUID(), `node-paid:${job.invoice}`];

const patience = performance.now() + 8 * job.leaseMs;
while ((await redis("SET", lock, owner, "NX", "PX", job.leaseMs)) !== "OK") {
  if (performance.now() > patience) process.exit(75);
  await sleep(job.leaseMs / 11);
}
const renewing = setInterval(() => redis("EVAL", EXTEND, 1, lock, owner, job.leaseMs).catch(() => {}), job.leaseMs / 3);
try {
  if ((await redis("GET", paid)) === null) {
    const headers = { "idempotency-key": `invoice-${job.invoice}` };
    let answer;
    do answer = await request("POST", "/v1/charges", { headers, body: invoiceBody(), agent });
    while (answer.body.error?.code === "idempotency_key_in_use");
    if (answer.status >= 300) throw new Error(answer.body.error.message);
    await redis("SET", paid, answer.body.id);
  }
} finally {
  clearInterval(renewing);
  await redis("EVAL", RELEASE, 1, lock, owner);
  redis.end();
  agent.destroy();
}
