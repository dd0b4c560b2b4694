// An engine for Berth: llama.cpp, by the npm package node-llama-cpp, behind a small
// OpenAI-compatible server. README.md says how it is started.
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { BadRequest, Busy, limits, parse } from "./request.js";
import { open } from "./model.js";

const { values: flags } = parseArgs({
  options: {
    model: { type: "string" }, alias: { type: "string" }, host: { type: "string", default: "127.0.0.1" },
    port: { type: "string", default: "8000" }, parallel: { type: "string", default: "4" },
    queue: { type: "string", default: "64" }, "ctx-size": { type: "string", default: "0" },
    threads: { type: "string", default: "0" },
  },
});
if (!flags.model) {
  console.error("usage: node server.js --model FILE.gguf [--alias NAME] [--port N] [--parallel N] [--queue N]" +
    " [--ctx-size N] [--threads N]");
  process.exit(2);
}
const alias = flags.alias ?? "model";
const counts = { requests: 0, cancelled: 0, refused: 0, prompt: 0, completion: 0 };
let model; // undefined until it is loaded.
let serial = 0;

function send(res, status, value, headers = {}) {
  const data = typeof value === "string" ? value : JSON.stringify(value);
  res.writeHead(status, {
    "content-type": "application/json", "content-length": Buffer.byteLength(data), ...headers,
  });
  res.end(data);
}

function fail(res, err) {
  if (res.destroyed) return;
  const [status, kind] =
    err instanceof BadRequest ? [400, "invalid_request_error"] :
    err instanceof Busy ? [503, "overloaded_error"] : [500, "server_error"];
  if (status === 500) console.error(err);
  if (err instanceof Busy) counts.refused++;
  const error = { message: status === 500 ? "The engine failed." : err.message, type: kind, param: null, code: err.code ?? kind };
  if (res.headersSent) {
    res.end(`data: ${JSON.stringify({ error })}\n\n`);
    return;
  }
  send(res, status, { error }, err instanceof Busy ? { "retry-after": "1" } : {});
}

// leaving returns a signal that is aborted when the client leaves before the answer
// is complete.
function leaving(res) {
  const gone = new AbortController();
  res.on("close", () => {
    if (res.writableFinished) return;
    counts.cancelled++;
    console.log("request cancelled: the client left");
    gone.abort();
  });
  return gone.signal;
}

async function body(req) {
  const parts = [];
  let size = 0;
  for await (const part of req) {
    size += part.length;
    if (size > limits.body) throw new BadRequest(`the body has more than ${limits.body} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

const usage = (prompt, completion, cached) => ({
  prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion,
  prompt_tokens_details: { cached_tokens: cached },
});

// generate answers chat and text completions, whole or as a stream.
async function generate(res, chat, asked) {
  const signal = leaving(res);
  const name = chat ? "chat.completion" : "text_completion";
  const id = `${chat ? "chatcmpl" : "cmpl"}-${++serial}`;
  const created = Math.floor(Date.now() / 1000);
  const base = (object) => ({ id, object, created, model: asked.model ?? alias });
  const run = await model.run(chat ? model.render(asked.messages) : asked.prompt, asked, signal);
  const total = () => {
    counts.prompt += run.prompt;
    counts.completion += run.completion;
    return usage(run.prompt, run.completion, run.cached);
  };
  try {
    if (!asked.stream) {
      let content = "";
      for await (const piece of run.pieces()) content += piece;
      if (signal.aborted) return;
      const choice = { index: 0, finish_reason: run.finish, logprobs: null };
      if (chat) choice.message = { role: "assistant", content, refusal: null };
      else choice.text = content;
      send(res, 200, { ...base(name), choices: [choice], usage: total() });
      return;
    }
    const object = chat ? "chat.completion.chunk" : name;
    const event = async (value) => {
      if (res.write(`data: ${value}\n\n`) || signal.aborted) return;
      // A client that reads slowly slows the model down.
      await new Promise((go) => {
        res.once("drain", go);
        signal.addEventListener("abort", go, { once: true });
      });
    };
    const choice = (piece, finish) => {
      const out = { index: 0, finish_reason: finish, logprobs: null };
      if (chat) out.delta = piece;
      else out.text = piece.content ?? "";
      return JSON.stringify({ ...base(object), choices: [out] });
    };
    res.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    if (chat) await event(choice({ role: "assistant", content: "" }, null));
    for await (const piece of run.pieces()) await event(choice({ content: piece }, null));
    if (signal.aborted) return;
    await event(choice({}, run.finish));
    const sum = total();
    if (asked.usage) await event(JSON.stringify({ ...base(object), choices: [], usage: sum }));
    await event("[DONE]");
    res.end();
  } finally {
    run.end();
  }
}

async function embed(res, asked) {
  const signal = leaving(res);
  const data = [];
  let tokens = 0;
  for (const [index, input] of asked.input.entries()) {
    const { vector, count } = await model.embed(input, signal);
    tokens += count;
    const embedding = asked.base64 ? Buffer.from(Float32Array.from(vector).buffer).toString("base64") : vector;
    data.push({ object: "embedding", index, embedding });
  }
  if (signal.aborted) return;
  counts.prompt += tokens;
  send(res, 200, {
    object: "list", data, model: asked.model ?? alias, usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

function metrics() {
  const lines = [];
  const add = (name, kind, help, value) =>
    lines.push(`# HELP llama_node_${name} ${help}`, `# TYPE llama_node_${name} ${kind}`, `llama_node_${name} ${value}`);
  add("requests_total", "counter", "Requests to the model.", counts.requests);
  add("requests_cancelled_total", "counter", "Requests whose client left.", counts.cancelled);
  add("requests_refused_total", "counter", "Requests that found the queue full.", counts.refused);
  add("prompt_tokens_total", "counter", "Tokens of answered prompts.", counts.prompt);
  add("generation_tokens_total", "counter", "Tokens of answers.", counts.completion);
  add("requests_running", "gauge", "Requests that the model answers.", model?.running() ?? 0);
  add("requests_waiting", "gauge", "Requests in the queue.", model?.waiting() ?? 0);
  return lines.join("\n") + "\n";
}

async function handle(req, res) {
  const path = new URL(req.url, "http://engine").pathname;
  if (req.method === "GET" && path === "/health") {
    return model ? send(res, 200, { status: "ok" }) : send(res, 503, { status: "loading" });
  }
  if (req.method === "GET" && path === "/metrics") return send(res, 200, metrics(), { "content-type": "text/plain" });
  if (req.method === "GET" && path === "/v1/models") {
    return send(res, 200, { object: "list", data: [{ id: alias, object: "model", created: 0, owned_by: "local" }] });
  }
  const kind = { "/v1/chat/completions": "chat", "/v1/completions": "text", "/v1/embeddings": "embed" }[path];
  if (req.method !== "POST" || !kind) {
    return send(res, 404, { error: { message: `no ${req.method} ${path}`, type: "invalid_request_error", code: "unknown_url" } });
  }
  if (!model) throw new Busy("the model is loading");
  counts.requests++;
  const asked = parse(kind, await body(req));
  if (kind === "embed") return embed(res, asked);
  return generate(res, kind === "chat", asked);
}

const server = createServer((req, res) => void handle(req, res).catch((err) => fail(res, err)));
server.keepAliveTimeout = 60_000; // Longer than the router keeps idle connections.
server.listen(Number(flags.port), flags.host);
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => process.exit(0));

model = await open(flags.model, {
  parallel: Number(flags.parallel), queue: Number(flags.queue), context: Number(flags["ctx-size"]),
  threads: Number(flags.threads),
});
console.log(`serving ${alias} on port ${flags.port}`);
