// A Redis client in a few lines, and the contract's environment: what the Node subjects share. No npm package.
import http from "node:http";
import net from "node:net";

export const job = {
  customer: process.env.CUSTOMER_ID,
  invoice: process.env.INVOICE_ID,
  amount: Number(process.env.AMOUNT),
  currency: process.env.CURRENCY,
  leaseMs: Number(process.env.LOCK_TTL_MS),
};

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Connects and returns command(...args) -> Promise of a string, a number or null; .end() closes. */
export async function connect(url = new URL(process.env.REDIS_URL)) {
  const socket = net.connect(Number(url.port), url.hostname);
  const waiting = [];
  let buffered = "";
  socket.on("data", (data) => {
    buffered += data;
    for (let end; (end = buffered.indexOf("\r\n")) >= 0 && waiting.length; ) {
      const head = buffered.slice(1, end);
      let used = end + 2;
      let value = head;
      if (buffered[0] === "$" && head !== "-1") {
        used += Number(head) + 2;
        if (buffered.length < used) return;
        value = buffered.slice(end + 2, used - 2);
      } else if (buffered[0] === "$") value = null;
      else if (buffered[0] === ":") value = Number(head);
      const { resolve, reject } = waiting.shift();
      if (buffered[0] === "-") reject(new Error(head));
      else resolve(value);
      buffered = buffered.slice(used);
    }
  });
  const fail = (error) => waiting.splice(0).forEach(({ reject }) => reject(error ?? new Error("Redis hung up")));
  socket.on("error", fail);
  socket.on("close", () => fail());
  const command = (...args) =>
    new Promise((resolve, reject) => {
      if (!socket.writable) return reject(new Error("Redis has hung up")); // a write would be answered by nobody
      waiting.push({ resolve, reject });
      const bulks = args.map((arg) => `$${Buffer.byteLength(String(arg))}\r\n${arg}\r\n`);
      socket.write(`*${args.length}\r\n${bulks.join("")}`);
    });
  command.end = () => socket.end();
  await command("SELECT", url.pathname.slice(1));
  return command;
}

/** One request to the processor; resolves to {status, body}, rejects when the connection breaks. */
export function request(method, path, { headers = {}, body, agent } = {}) {
  const url = new URL(path, process.env.PROCESSOR_URL);
  const data = body === undefined ? "" : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const options = {
      method,
      agent,
      headers: { "content-type": "application/json", "content-length": Buffer.byteLength(data), ...headers },
    };
    const sent = http.request(url, options, (answer) => {
      let text = "";
      answer.on("data", (chunk) => (text += chunk));
      answer.on("end", () => resolve({ status: answer.statusCode, body: JSON.parse(text) }));
      answer.on("error", reject);
    });
    sent.on("error", reject);
    sent.end(data);
  });
}

export const invoiceBody = () => {
  const { customer, invoice, amount, currency } = job;
  return { customer, invoice, amount, currency };
};
