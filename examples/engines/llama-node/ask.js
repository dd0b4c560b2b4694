// Asks a deployment by OpenAI's own client, unchanged, and prints what it got as JSON.
//
// Usage: OPENAI_BASE_URL=http://NODE/openai/v1 OPENAI_API_KEY=KEY node ask.js DEPLOYMENT
import OpenAI from "openai";

const model = process.argv[2];
const client = new OpenAI({ maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }];
const limits = { model, max_tokens: 8, temperature: 0 };

const models = await client.models.list();
const chat = await client.chat.completions.create({ ...limits, messages });
const text = await client.completions.create({ ...limits, prompt: "Hello" });

let streamed = "", usage = null;
const stream = await client.chat.completions.create({
  ...limits, messages, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}

// The client asks for base64 and decodes it.
const embeddings = await client.embeddings.create({ model, input: ["Hello", "there"] });

const errors = {};
for (const [name, ask] of Object.entries({
  unknown: () => client.chat.completions.create({ model: "no-such-model", messages }),
  bad: () => client.chat.completions.create({ model, messages, temperature: 9 }),
  unauthenticated: () => new OpenAI({ apiKey: "wrong", maxRetries: 0 }).models.list(),
})) {
  try {
    await ask();
    errors[name] = null;
  } catch (err) {
    errors[name] = { class: err.constructor.name, status: err.status, code: err.code };
  }
}

console.log(JSON.stringify({
  models: models.data.map((m) => m.id), chat: chat.choices[0].message.content, chatUsage: chat.usage,
  text: text.choices[0].text, streamed, usage, embeddings: embeddings.data.map((e) => e.embedding), errors,
}));
