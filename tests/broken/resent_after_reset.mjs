// httpclient#142, axios-retry#66: the HTTP library sends a POST again after a connection reset.
// A command: node tests/broken/resent_after_reset.mjs
import { randomUUID } from "node:crypto";
import { connect, invoiceBody, job, request, sleep } from "./redis.mjs";

const EXTEND = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("PEXPIRE", KEYS[1], ARGV[2]) or 0';
const RELEASE = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0';

async function post(path, body, attempts = 3) {
  try {
    return await request("POST", path, { body });
  } catch (error) {
    if (error.code !== "ECONNRESET" || attempts === 1) throw error;
    return post(path, body, attempts - 1); // what was asked for may have been done
  }
}

const redis = await connect();
const [lock, owner, paid] = [`lock:${job.customer}`, randomUUID(), `paid:${job.invoice}`];
const patience = Date.now() + 8 * job.leaseMs;
while ((await redis("SET", lock, owner, "NX", "PX", job.leaseMs)) !== "OK") {
  if (Date.now() > patience) process.exit(75);
  await sleep(job.leaseMs / 12);
}
const renewing = setInterval(() => redis("EVAL", EXTEND, 1, lock, owner, job.leaseMs).catch(() => {}), job.leaseMs / 3);
try {
  if ((await redis("GET", paid)) === null) {
    const { status, body } = await post("/v1/charges", invoiceBody());
    if (status < 300) await redis("SET", paid, body.id);
  }
} finally {
  clearInterval(renewing);
  await redis("EVAL", RELEASE, 1, lock, owner);
  redis.end();
}
