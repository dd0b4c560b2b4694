// What clients may ask: parses and checks the bodies of requests.

export const limits = { body: 16 << 20, stops: 4, inputs: 256 };

export class BadRequest extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

export class Busy extends Error {
  constructor(message) {
    super(message);
    this.code = "overloaded";
  }
}

function number(body, name, fallback, least, most) {
  const value = body[name] ?? fallback;
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !(value >= least && value <= most)) {
    throw new BadRequest(`${name} is a number from ${least} to ${most}`);
  }
  return value;
}

// messageText returns the text of a message, whose content may be in parts.
function messageText(content) {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  if (!Array.isArray(content) || content.some((part) => part?.type !== "text" || typeof part.text !== "string")) {
    throw new BadRequest("the content of a message is text");
  }
  return content.map((part) => part.text).join("");
}

function messages(body) {
  if (!Array.isArray(body.messages) || body.messages.length === 0) throw new BadRequest("messages is a list of messages");
  return body.messages.map((m) => {
    if (typeof m?.role !== "string") throw new BadRequest("each message has a role");
    return { role: m.role, content: messageText(m.content) };
  });
}

function prompt(body) {
  const [text, ...more] = Array.isArray(body.prompt) ? body.prompt : [body.prompt];
  if (typeof text !== "string" || more.length > 0) throw new BadRequest("prompt is one text");
  return text;
}

function inputs(body) {
  const list = Array.isArray(body.input) ? body.input : [body.input];
  if (list.length === 0 || list.length > limits.inputs || list.some((text) => typeof text !== "string" || text === "")) {
    throw new BadRequest(`input is a text or a list of 1 to ${limits.inputs} texts`);
  }
  return list;
}

// parse returns what is asked. Kind is chat, text or embed.
export function parse(kind, data) {
  let body;
  try {
    body = JSON.parse(data);
  } catch {
    throw new BadRequest("the body is no JSON", "invalid_json");
  }
  if (typeof body !== "object" || body === null) throw new BadRequest("the body is an object");
  if (kind === "embed") return { model: body.model, input: inputs(body), base64: body.encoding_format === "base64" };
  if ((body.n ?? 1) !== 1) throw new BadRequest("n is 1");
  const stop = [body.stop ?? []].flat();
  if (stop.length > limits.stops || stop.some((text) => typeof text !== "string" || text === "")) {
    throw new BadRequest(`stop is a text or a list of up to ${limits.stops} texts`);
  }
  const most = body.max_completion_tokens === undefined ? "max_tokens" : "max_completion_tokens";
  const asked = {
    model: body.model, stop, stream: body.stream === true, usage: body.stream_options?.include_usage === true,
    max: number(body, most, kind === "chat" ? undefined : 16, 1, 1 << 20),
    temperature: number(body, "temperature", 1, 0, 2), topP: number(body, "top_p", 1, 0, 1),
    seed: number(body, "seed", undefined, -(2 ** 53), 2 ** 53),
  };
  if (kind === "chat") asked.messages = messages(body);
  else asked.prompt = prompt(body);
  return asked;
}
