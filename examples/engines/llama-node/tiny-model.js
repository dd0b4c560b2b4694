// Writes a tiny model of the Llama architecture with random weights, for tests and to
// try an engine: it loads in moments and answers with random words.
//
// Usage: node tiny-model.js FILE.gguf [SEED]
//
// The format is GGUF, version 3:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
import { writeFileSync } from "node:fs";

const alignment = 32;
const type = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 };
const shape = { embedding: 64, heads: 4, layers: 2, feedForward: 128, context: 32768 };

// random returns numbers from 0 to 1, the same ones for the same seed (mulberry32).
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

function integer(bytes, value) {
  const out = Buffer.alloc(bytes);
  if (bytes === 8) out.writeBigUInt64LE(BigInt(value));
  else out.writeInt32LE(value | 0);
  return out;
}

function text(value) {
  const bytes = Buffer.from(value, "utf8");
  return Buffer.concat([integer(8, bytes.length), bytes]);
}

function float(value) {
  const out = Buffer.alloc(4);
  out.writeFloatLE(value);
  return out;
}

const encoders = {
  [type.u32]: (v) => integer(4, v),
  [type.i32]: (v) => integer(4, v),
  [type.f32]: float,
  [type.bool]: (v) => Buffer.from([v ? 1 : 0]),
  [type.string]: text,
};

function pair(key, kind, value) {
  return Buffer.concat([text(key), integer(4, kind), encoders[kind](value)]);
}

function list(key, kind, values) {
  return Buffer.concat([
    text(key), integer(4, type.array), integer(4, kind), integer(8, values.length), ...values.map(encoders[kind]),
  ]);
}

// vocabulary returns the tokens with their kinds: the special ones, all bytes, all
// printable characters, and words.
function vocabulary(next) {
  const tokens = [["<unk>", 2], ["<s>", 3], ["</s>", 3]];
  for (let i = 0; i < 256; i++) tokens.push([`<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`, 6]);
  const seen = new Set(["▁"]);
  for (let c = 0x21; c < 0x7f; c++) seen.add(String.fromCharCode(c));
  while (seen.size < 200) {
    let word = "▁";
    for (let n = 1 + Math.floor(next() * 3); n > 0; n--) {
      word += "bdfklmnprst"[Math.floor(next() * 11)] + "aeiou"[Math.floor(next() * 5)];
    }
    seen.add(word);
  }
  for (const word of seen) tokens.push([word, 1]);
  return tokens;
}

const template =
  "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";

function metadata(tokens) {
  return [
    pair("general.architecture", type.string, "llama"),
    pair("general.name", type.string, "tiny"),
    pair("general.alignment", type.u32, alignment),
    pair("llama.vocab_size", type.u32, tokens.length),
    pair("llama.context_length", type.u32, shape.context),
    pair("llama.embedding_length", type.u32, shape.embedding),
    pair("llama.block_count", type.u32, shape.layers),
    pair("llama.feed_forward_length", type.u32, shape.feedForward),
    pair("llama.rope.dimension_count", type.u32, shape.embedding / shape.heads),
    pair("llama.attention.head_count", type.u32, shape.heads),
    pair("llama.attention.head_count_kv", type.u32, shape.heads),
    pair("llama.attention.layer_norm_rms_epsilon", type.f32, 1e-5),
    pair("tokenizer.ggml.model", type.string, "llama"),
    list("tokenizer.ggml.tokens", type.string, tokens.map(([token]) => token)),
    // Merges with higher scores come first: longer words before shorter ones.
    list("tokenizer.ggml.scores", type.f32, tokens.map(([token, kind]) => (kind === 1 ? token.length - 100 : 0))),
    list("tokenizer.ggml.token_type", type.i32, tokens.map(([, kind]) => kind)),
    pair("tokenizer.ggml.unknown_token_id", type.u32, 0),
    pair("tokenizer.ggml.bos_token_id", type.u32, 1),
    pair("tokenizer.ggml.eos_token_id", type.u32, 2),
    pair("tokenizer.ggml.add_bos_token", type.bool, true),
    pair("tokenizer.chat_template", type.string, template),
  ];
}

// tensors returns name, dimensions (the fastest first) and what each number is.
function tensors(tokens, next) {
  const { embedding, feedForward } = shape;
  const any = (scale) => () => (next() * 2 - 1) * scale;
  const one = () => 1;
  // Only words are ever said: the other rows of the output are zero.
  const spoken = (i) => {
    const [token, kind] = tokens[Math.floor(i / embedding)];
    return kind === 1 && token.length > 2 ? (next() * 2 - 1) * 0.5 : 0;
  };
  const out = [
    ["token_embd.weight", [embedding, tokens.length], any(1)],
    ["output_norm.weight", [embedding], one],
    ["output.weight", [embedding, tokens.length], spoken],
  ];
  for (let i = 0; i < shape.layers; i++) {
    const add = (name, dims, value) => out.push([`blk.${i}.${name}.weight`, dims, value]);
    for (const name of ["attn_q", "attn_k", "attn_v", "attn_output"]) add(name, [embedding, embedding], any(0.3));
    for (const name of ["attn_norm", "ffn_norm"]) add(name, [embedding], one);
    for (const name of ["ffn_gate", "ffn_up"]) add(name, [embedding, feedForward], any(0.3));
    add("ffn_down", [feedForward, embedding], any(0.3));
  }
  return out;
}

const padding = (size) => Buffer.alloc((alignment - (size % alignment)) % alignment);

function model(seed) {
  const next = random(seed);
  const tokens = vocabulary(next);
  const pairs = metadata(tokens);
  const infos = [], data = [];
  let offset = 0;
  for (const [name, dims, value] of tensors(tokens, next)) {
    const numbers = Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) }, (_, i) => value(i));
    const bytes = Buffer.from(numbers.buffer);
    infos.push(text(name), integer(4, dims.length), ...dims.map((n) => integer(8, n)), integer(4, 0), integer(8, offset));
    data.push(bytes, padding(bytes.length));
    offset += bytes.length + padding(bytes.length).length;
  }
  const count = tensors(tokens, next).length;
  const head = Buffer.concat([
    Buffer.from("GGUF"), integer(4, 3), integer(8, count), integer(8, pairs.length), ...pairs, ...infos,
  ]);
  return Buffer.concat([head, padding(head.length), ...data]);
}

const [file, seed = "1"] = process.argv.slice(2);
if (!file) {
  console.error("usage: node tiny-model.js FILE.gguf [SEED]");
  process.exit(2);
}
writeFileSync(file, model(Number(seed)));
