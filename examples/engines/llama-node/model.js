// The model: loads it, and runs a bounded number of requests on it at once.
import { Template } from "@huggingface/jinja";
import { getLlama, LlamaLogLevel } from "node-llama-cpp";
import { BadRequest, Busy } from "./request.js";

const plainTemplate =
  "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}{{ 'assistant:' }}";
const defaultContext = 2048; // Tokens of each request, if --ctx-size does not say.
const longestCharacter = 4; // Bytes, and so tokens, of one character at most.

// Slots hands out a bounded number of things, in turn, to a bounded queue.
class Slots {
  constructor(free, queue) {
    Object.assign(this, { free, size: free.length, most: queue, queue: [] });
  }

  take(signal) {
    if (this.free.length > 0) return Promise.resolve(this.free.pop());
    if (this.queue.length >= this.most) return Promise.reject(new Busy("too many requests: try again later"));
    return new Promise((take, leave) => {
      const waiting = { take };
      this.queue.push(waiting);
      signal.addEventListener("abort", () => {
        const at = this.queue.indexOf(waiting);
        if (at < 0) return;
        this.queue.splice(at, 1);
        leave(new Error("the client left"));
      }, { once: true });
    });
  }

  give(slot) {
    const next = this.queue.shift();
    if (next) next.take(slot);
    else this.free.push(slot);
  }
}

// endsInStop returns how many of a text's last characters begin a stop.
function endsInStop(text, stops) {
  let most = 0;
  for (const stop of stops) {
    for (let n = Math.min(stop.length - 1, text.length); n > most; n--) {
      if (text.endsWith(stop.slice(0, n))) most = n;
    }
  }
  return most;
}

// Run is one request on the model.
class Run {
  constructor(model, sequence, tokens, asked, signal, end) {
    Object.assign(this, { model, sequence, tokens, asked, signal, end });
    this.prompt = tokens.length;
    this.completion = this.cached = 0;
    this.finish = "length";
  }

  // tokensOut generates tokens until the model ends its answer or there are enough.
  async *tokensOut() {
    const { sequence, tokens, asked } = this;
    // What the sequence has of the same beginning is not computed again. The last
    // token always is: the answer begins with what it predicts.
    await sequence.adaptStateToTokens(tokens.slice(0, -1), false);
    this.cached = sequence.nextTokenIndex;
    const room = sequence.contextSize - tokens.length;
    const most = Math.min(asked.max ?? room, room);
    const options = { temperature: asked.temperature, topP: asked.topP, yieldEogToken: true };
    if (asked.seed !== undefined) options.seed = Math.abs(asked.seed) % 2 ** 32;
    for await (const token of sequence.evaluate(tokens.slice(this.cached), options)) {
      if (this.signal.aborted) return;
      if (this.model.isEogToken(token)) {
        this.finish = "stop";
        return;
      }
      this.completion++;
      yield token;
      if (this.completion >= most) return;
    }
  }

  // texts yields the text of the tokens, whole characters only.
  async *texts() {
    let pending = [], before = [];
    for await (const token of this.tokensOut()) {
      pending.push(token);
      const text = this.model.detokenize(pending, false, before);
      if (text.endsWith("\ufffd") && pending.length < longestCharacter) continue;
      before = pending;
      pending = [];
      yield text;
    }
    if (pending.length > 0) yield this.model.detokenize(pending, false, before);
  }

  // pieces yields the answer up to the first stop.
  async *pieces() {
    const stops = this.asked.stop;
    let held = "";
    for await (const text of this.texts()) {
      held += text;
      const at = Math.min(...stops.map((stop) => held.indexOf(stop)).filter((i) => i >= 0));
      if (at !== Infinity) {
        this.finish = "stop";
        if (at > 0) yield held.slice(0, at);
        return;
      }
      const keep = endsInStop(held, stops);
      if (held.length > keep) yield held.slice(0, held.length - keep);
      held = held.slice(held.length - keep);
    }
    if (held) yield held;
  }
}

// open loads a model.
export async function open(modelPath, { parallel, queue, context, threads }) {
  const llama = await getLlama({
    build: "never", skipDownload: true, progressLogs: false, logLevel: LlamaLogLevel.warn,
    ...(threads > 0 ? { maxThreads: threads } : {}),
  });
  const model = await llama.loadModel({ modelPath });
  const contextSize = Math.min(context || defaultContext, model.trainContextSize);
  const main = await model.createContext({ sequences: parallel, contextSize, ...(threads > 0 ? { threads } : {}) });
  const slots = new Slots(Array.from({ length: parallel }, () => main.getSequence()), queue);
  const embedding = new Slots([await model.createEmbeddingContext({ contextSize })], queue);
  const template = new Template(model.fileInfo.metadata?.tokenizer?.chat_template ?? plainTemplate);
  const special = (token) => (token === null ? "" : model.detokenize([token], true));

  // tokenize returns the tokens of a prompt. Only the template may have special ones.
  function tokenize(text, templated) {
    const tokens = model.tokenize(text, templated);
    const bos = model.tokens.bos;
    if (model.tokens.shouldPrependBosToken && bos !== null && tokens[0] !== bos) tokens.unshift(bos);
    if (tokens.length === 0) throw new BadRequest("the prompt is empty");
    if (tokens.length >= contextSize) {
      throw new BadRequest(`the prompt has ${tokens.length} tokens, and with its answer at most ${contextSize} fit`,
        "context_length_exceeded");
    }
    return tokens;
  }

  return {
    running: () => slots.size - slots.free.length,
    waiting: () => slots.queue.length,

    // render returns a chat as the model's template writes it.
    render(messages) {
      try {
        return {
          chat: template.render({
            messages, add_generation_prompt: true, bos_token: special(model.tokens.bos), eos_token: special(model.tokens.eos),
          }),
        };
      } catch (err) {
        throw new BadRequest(`the model's chat template does not take these messages: ${err.message}`);
      }
    },

    // run waits for its turn. The caller reads the pieces, then calls end.
    async run(prompt, asked, signal) {
      const tokens = typeof prompt === "string" ? tokenize(prompt, false) : tokenize(prompt.chat, true);
      const sequence = await slots.take(signal);
      return new Run(model, sequence, tokens, asked, signal, () => slots.give(sequence));
    },

    async embed(text, signal) {
      const tokens = tokenize(text, false);
      const context = await embedding.take(signal);
      try {
        const { vector } = await context.getEmbeddingFor(tokens);
        return { vector: [...vector], count: tokens.length };
      } finally {
        embedding.give(context);
      }
    },
  };
}
