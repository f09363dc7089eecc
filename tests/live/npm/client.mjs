// The openai npm client, driven by the live tests: `node client.mjs BASE_URL WHAT [MODE]` prints one JSON object.

import OpenAI from "openai";

const [baseURL, what, mode] = process.argv.slice(2);
const apiKey = process.env.LIVE_CLIENT_KEY ?? "unused";
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 60_000 });
const model = "tiny";
const hello = [{ role: "user", content: "hello there" }];
const count = [{ role: "user", content: "count please" }];

/** Read a chat stream to its end: both channels, the finish reason, and what came without choices. */
async function gather(stream) {
  const seen = { reasoning: "", reasoningContent: "", content: "", finish: null, chunks: 0, withoutChoices: 0, usage: null };
  for await (const chunk of stream) {
    seen.chunks += 1;
    seen.withoutChoices += chunk.choices.length === 0 ? 1 : 0;
    seen.usage = chunk.usage ?? seen.usage;
    const choice = chunk.choices[0];
    seen.reasoning += choice?.delta?.reasoning ?? "";
    seen.reasoningContent += choice?.delta?.reasoning_content ?? "";
    seen.content += choice?.delta?.content ?? "";
    seen.finish = choice?.finish_reason ?? seen.finish;
  }
  return seen;
}

/** What an error looks like to a program: its class, status and the engine's own words. */
async function failure(promise) {
  try {
    const value = await promise;
    if (value?.[Symbol.asyncIterator]) await gather(value);
    return { name: "none" };
  } catch (error) {
    const name = error.constructor.name;
    return { name, status: error.status ?? null, type: error.type ?? null, message: error.message };
  }
}

const scenes = {
  models: async () => ({ ids: (await client.models.list()).data.map((entry) => entry.id) }),
  stream: async () => gather(await client.chat.completions.create({ model, messages: hello, temperature: 0, stream: true })),
  usage: async () =>
    gather(
      await client.chat.completions.create({
        model,
        messages: hello,
        temperature: 0,
        stream: true,
        stream_options: { include_usage: true },
      }),
    ),
  whole: async () => {
    const { data, response } = await client.chat.completions
      .create({ model, messages: hello, temperature: 0 })
      .withResponse();
    const { message, finish_reason: finish } = data.choices[0];
    return {
      content: message.content,
      reasoning: message.reasoning,
      finish,
      usage: data.usage,
      type: response.headers.get("content-type"),
    };
  },
  completions: async () => {
    const stream = await client.completions.create({ model, prompt: "1 2 3 4", max_tokens: 24, temperature: 0, stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
    return { text };
  },
  // In one piece and as a stream; what the stream's deltas were and what its last event holds.
  responses: async () => {
    const asked = { model, input: "hello there", temperature: 0 };
    const texts = (response) => Object.fromEntries(response.output.map((item) => [item.type, item.content[0].text]));
    const whole = await client.responses.create(asked);
    const deltas = { reasoning: "", message: "" };
    let last = null;
    for await (const event of await client.responses.create({ ...asked, stream: true })) {
      if (event.type === "response.reasoning_text.delta") deltas.reasoning += event.delta;
      if (event.type === "response.output_text.delta") deltas.message += event.delta;
      last = event;
    }
    const { type, response } = last;
    return { whole: texts(whole), text: whole.output_text, deltas, last: type, end: texts(response), usage: response.usage };
  },
  // The helper that puts a stream together by itself and is strict about what it is given.
  helper: async () => {
    const runner = client.chat.completions.stream({ model, messages: hello, temperature: 0 });
    const completion = await runner.finalChatCompletion();
    return { content: completion.choices[0].message.content, finish: completion.choices[0].finish_reason };
  },
  // A stream with its reasoning in a given way, by hand and by the helper, which is strict about what it is given.
  reasoning: async () => {
    const headers = { "X-Gateway-Reasoning": mode };
    const seen = await gather(
      await client.chat.completions.create({ model, messages: hello, temperature: 0, stream: true }, { headers }),
    );
    const runner = client.chat.completions.stream({ model, messages: hello, temperature: 0 }, { headers });
    const completion = await runner.finalChatCompletion();
    return { ...seen, helper: completion.choices[0].message.content };
  },
  abort: async () => {
    const stream = await client.chat.completions.create({
      model,
      messages: count,
      max_tokens: 1900,
      ignore_eos: true,
      stream: true,
    });
    let chunks = 0;
    for await (const chunk of stream) {
      chunks += chunk.choices.length;
      if (chunks === 20) stream.controller.abort();
    }
    return { chunks };
  },
  errors: async () => ({
    model: await failure(client.chat.completions.create({ model: "other", messages: hello })),
    modelStream: await failure(client.chat.completions.create({ model: "other", messages: hello, stream: true })),
    maxTokens: await failure(client.chat.completions.create({ model, messages: hello, max_tokens: 100_000 })),
    temperature: await failure(client.chat.completions.create({ model, messages: hello, temperature: -3 })),
    responses: await failure(client.responses.create({ model: "other", input: "hello there" })),
    path: await failure(client.get("/nothing/here")),
  }),
  // Reads an endless stream until it breaks; the test breaks it.
  broken: async () =>
    failure(
      client.chat.completions.create({ model, messages: count, max_tokens: 1900, ignore_eos: true, stream: true }),
    ),
};

console.log(JSON.stringify(await scenes[what]()));
