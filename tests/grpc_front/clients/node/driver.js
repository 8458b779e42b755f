// Apache's Node.js client, driven from outside: one JSON object per line in, {"cmd": ..., "args": {...}}, and one per line
// out, {"result": ...} or {"error": text}.
'use strict';

const readline = require('readline');
const rocketmq = require('rocketmq-client-nodejs');

const OUTCOMES = { COMMIT: 1, ROLLBACK: 2, UNKNOWN: 0 };
const clients = new Map();
const watchers = new Map();
const held = new Map();
const silent = { info() {}, warn: console.error, error: console.error, debug() {} };

function access(args) {
  const options = { endpoints: args.endpoint, namespace: '', logger: silent, requestTimeout: Number(process.env.REQUEST_S) * 1000 };
  if (args.access_key) {
    options.sessionCredentials = { accessKey: args.access_key, accessSecret: args.secret_key };
  }
  return options;
}

function shown(message) {
  return {
    id: message.messageId,
    topic: message.topic,
    body: message.body.toString(),
    tag: message.tag || null,
    keys: [...message.keys].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup || null,
    attempt: message.deliveryAttempt,
  };
}

function messageOf(args) {
  const message = { topic: args.topic, body: Buffer.from(args.body) };
  if (args.tag) message.tag = args.tag;
  if (args.keys) message.keys = args.keys;
  if (args.group) message.messageGroup = args.group;
  if (args.properties) message.properties = new Map(Object.entries(args.properties));
  if (args.deliver_ms) message.deliveryTimestamp = new Date(args.deliver_ms);
  return message;
}

async function start(name, client) {
  await client.startup();
  clients.set(name, client);
}

const commands = {
  ping: async () => 'pong',

  async start_producer(args) {
    const seen = [];
    watchers.set(args.name, seen);
    const checker = {
      async check(message) {
        seen.push(message.messageId);
        return OUTCOMES[args.check || 'UNKNOWN'];
      },
    };
    await start(args.name, new rocketmq.Producer({ ...access(args), topics: args.topics, checker }));
  },

  async send(args) {
    const receipt = await clients.get(args.name).send(messageOf(args));
    return { id: receipt.messageId, recall_handle: receipt.recallHandle };
  },

  async send_in_transaction(args) {
    const producer = clients.get(args.name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(messageOf(args), transaction);
    if (args.outcome === 'COMMIT') await transaction.commit();
    if (args.outcome === 'ROLLBACK') await transaction.rollback();
    return { id: receipt.messageId };
  },

  async recall(args) {
    return (await clients.get(args.name).recallMessage(args.topic, args.handle)).messageId;
  },

  async start_simple(args) {
    const subscriptions = new Map([[args.topic, args.expression || '*']]);
    await start(args.name, new rocketmq.SimpleConsumer({
      ...access(args), consumerGroup: args.group, subscriptions, awaitDuration: 5000,
    }));
  },

  async receive(args) {
    const found = await clients.get(args.name).receive(args.count, args.invisible_s * 1000);
    found.forEach(message => held.set(message.messageId, message));
    return found.map(shown);
  },

  async ack(args) {
    await clients.get(args.name).ack(held.get(args.id));
  },

  async change(args) {
    await clients.get(args.name).changeInvisibleDuration(held.get(args.id), args.invisible_s * 1000);
  },

  async start_push(args) {
    const seen = [];
    const times = new Map();
    watchers.set(args.name, seen);
    const messageListener = {
      async consume(message) {
        seen.push(shown(message));
        times.set(message.messageId, (times.get(message.messageId) || 0) + 1);
        const fails = times.get(message.messageId) <= (args.fail_first || 0);
        return fails ? rocketmq.ConsumeResult.FAILURE : rocketmq.ConsumeResult.SUCCESS;
      },
    };
    const subscriptions = new Map([[args.topic, args.expression || '*']]);
    await start(args.name, new rocketmq.PushConsumer({
      ...access(args), consumerGroup: args.group, subscriptions, messageListener,
    }));
  },

  seen: async args => watchers.get(args.name),

  async stop(args) {
    const client = clients.get(args.name);
    clients.delete(args.name);
    await client.shutdown();
  },
};

const wire = process.stdout.write.bind(process.stdout);
console.log = console.error; // whatever else prints goes to standard error

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    if (request.cmd === 'quit') break;
    let reply;
    try {
      const result = await commands[request.cmd](request.args);
      reply = { result: result === undefined ? null : result };
    } catch (error) {
      reply = { error: `${error.stack}` };
    }
    wire(`${JSON.stringify(reply)}\n`);
  }
  wire('{"result": null}\n', () => process.exit(0));
}

main();
