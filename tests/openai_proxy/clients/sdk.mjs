// A program with OpenAI's SDK for TypeScript: node sdk.mjs TURNS LIVE BASE_URL ...; it writes what it
// got from each as JSON.
import OpenAI from "openai";

const [turns, live, ...urls] = process.argv.slice(2);
let client;
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];

async function asked(messages, fields = {}) {
  const completion = await client.chat.completions.create({ model: "m", messages, ...fields });
  return completion.choices[0].message;
}

async function chunks(messages, fields = {}) {
  const got = [];
  for await (const chunk of await client.chat.completions.create({ model: "m", messages, stream: true, ...fields })) {
    got.push(chunk);
  }
  return got;
}

async function streamed(messages, fields = {}) {
  const stream = client.chat.completions.stream({ model: "m", messages, ...fields });
  return (await stream.finalChatCompletion()).choices[0].message;
}

// A call of a tool, and what is said of its result.
async function called(ask, words) {
  const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: words }];
  const { tool_calls } = await ask(messages, { tools });
  messages.push({ role: "assistant", tool_calls });
  messages.push({ role: "tool", tool_call_id: tool_calls[0].id, content: "sunny" });
  const answer = await ask(messages, { tools });
  return [tool_calls[0].function, answer.content];
}

// The number of the last turn, and its answer or the code of the error that ended the conversation. Only so many turns at
// its end are asked; those before them were said elsewhere.
async function conversation(said, live) {
  const messages = [];
  for (const [at, content] of said.entries()) {
    messages.push({ role: "user", content });
    if (at < said.length - live) {
      messages.push({ role: "assistant", content: "Noted." });
      continue;
    }
    try {
      messages.push({ role: "assistant", content: (await streamed(messages)).content });
    } catch (error) {
      return [at + 1, error.code];
    }
  }
  return [said.length, messages.at(-1).content];
}

const got = [];
for (const baseURL of urls) {
  client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  got.push({
    chat: (await asked([{ role: "user", content: "Hello, by node" }])).content,
    stream: await chunks([{ role: "user", content: "Hello in pieces, by node" }]),
    tools: await called(asked, "How is it out there, by node?"),
    tools_streamed: await called(streamed, "How is it out there in pieces, by node?"),
    tool_stream: await chunks([{ role: "user", content: "And now, by node?" }], { tools }),
    conversation: await conversation(JSON.parse(turns), Number(live)),
  });
}
console.log(JSON.stringify(got));
