// Apache's Rust client, driven from outside: one JSON object per line in, {"cmd": ..., "args": {...}}, and one per line out,
// {"result": ...} or {"error": text}. It has no push consumer, recalls nothing, and changes no invisible time.
use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex as SyncMutex};
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Mutex;

struct Simple {
    consumer: SimpleConsumer,
    topic: String,
    expression: FilterExpression,
}

#[derive(Default)]
struct Driver {
    producers: HashMap<String, Producer>,
    consumers: HashMap<String, Simple>,
    held: HashMap<String, MessageView>,
    asked: HashMap<String, Arc<SyncMutex<Vec<String>>>>,
}

fn text(args: &Value, name: &str) -> String {
    args[name].as_str().unwrap_or_default().to_owned()
}

fn access(args: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(args, "endpoint"));
    option.set_timeout(Duration::from_secs(env::var("REQUEST_S").unwrap().parse().unwrap()));
    if args["access_key"].is_string() {
        option.set_access_key(text(args, "access_key"));
        option.set_secret_key(text(args, "secret_key"));
    }
    option
}

fn message_of(args: &Value, in_transaction: bool) -> Result<impl Message, ClientError> {
    let mut builder = MessageBuilder::builder()
        .set_topic(text(args, "topic"))
        .set_body(text(args, "body").into_bytes());
    if args["tag"].is_string() {
        builder = builder.set_tag(text(args, "tag"));
    }
    if let Some(keys) = args["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(properties) = args["properties"].as_object() {
        let pairs = properties.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap()));
        builder = builder.set_properties(pairs.collect());
    }
    if args["group"].is_string() {
        builder = builder.set_message_group(text(args, "group"));
    }
    if let Some(ms) = args["deliver_ms"].as_i64() {
        builder = builder.set_delivery_timestamp(ms / 1000);
    }
    if in_transaction {
        builder = builder.enable_transaction();
    }
    builder.build()
}

fn shown(message: &MessageView) -> Value {
    let mut keys = message.keys().to_vec();
    keys.sort();
    json!({
        "id": message.message_id(),
        "topic": message.topic(),
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag(),
        "keys": keys,
        "properties": message.properties(),
        "group": message.message_group(),
        "attempt": message.delivery_attempt(),
    })
}

fn resolution(outcome: &str) -> TransactionResolution {
    match outcome {
        "COMMIT" => TransactionResolution::COMMIT,
        "ROLLBACK" => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

impl Driver {
    async fn start_producer(&mut self, args: &Value) -> Result<Value, ClientError> {
        let mut option = ProducerOption::default();
        option.set_topics(args["topics"].as_array().unwrap().iter().filter_map(Value::as_str).collect());
        let seen = Arc::new(SyncMutex::new(Vec::new()));
        self.asked.insert(text(args, "name"), seen.clone());
        let outcome = text(args, "check");
        let mut producer = if outcome.is_empty() {
            Producer::new(option, access(args))?
        } else {
            let checker = move |_: String, message: MessageView| {
                seen.lock().unwrap().push(message.message_id().to_owned());
                resolution(&outcome)
            };
            Producer::new_transaction_producer(option, access(args), Box::new(checker))?
        };
        producer.start().await?;
        self.producers.insert(text(args, "name"), producer);
        Ok(Value::Null)
    }

    async fn send(&mut self, args: &Value) -> Result<Value, ClientError> {
        let receipt = self.producers[&text(args, "name")].send(message_of(args, false)?).await?;
        Ok(json!({"id": receipt.message_id()}))
    }

    async fn send_in_transaction(&mut self, args: &Value) -> Result<Value, ClientError> {
        let producer = &self.producers[&text(args, "name")];
        let transaction = producer.send_transaction_message(message_of(args, true)?).await?;
        let id = transaction.message_id().to_owned();
        match resolution(&text(args, "outcome")) {
            TransactionResolution::COMMIT => transaction.commit().await?,
            TransactionResolution::ROLLBACK => transaction.rollback().await?,
            TransactionResolution::UNKNOWN => {}
        }
        Ok(json!({"id": id}))
    }

    async fn start_simple(&mut self, args: &Value) -> Result<Value, ClientError> {
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(args, "group"));
        option.set_topics(vec![text(args, "topic")]);
        let mut consumer = SimpleConsumer::new(option, access(args))?;
        consumer.start().await?;
        let wanted = args["expression"].as_str().unwrap_or("*");
        let expression = FilterExpression::new(FilterType::Tag, wanted);
        let topic = text(args, "topic");
        self.consumers.insert(text(args, "name"), Simple { consumer, topic, expression });
        Ok(Value::Null)
    }

    async fn receive(&mut self, args: &Value) -> Result<Value, ClientError> {
        let Simple { consumer, topic, expression } = &self.consumers[&text(args, "name")];
        let count = args["count"].as_i64().unwrap() as i32;
        let invisible = Duration::from_secs(args["invisible_s"].as_u64().unwrap());
        let messages = consumer.receive_with(topic, expression, count, invisible).await?;
        let found = messages.iter().map(shown).collect();
        self.held.extend(messages.into_iter().map(|message| (message.message_id().to_owned(), message)));
        Ok(Value::Array(found))
    }

    async fn ack(&mut self, args: &Value) -> Result<Value, ClientError> {
        self.consumers[&text(args, "name")].consumer.ack(&self.held[&text(args, "id")]).await?;
        Ok(Value::Null)
    }

    fn seen(&self, args: &Value) -> Value {
        json!(*self.asked[&text(args, "name")].lock().unwrap())
    }

    async fn stop(&mut self, args: &Value) -> Result<Value, ClientError> {
        let name = text(args, "name");
        if let Some(producer) = self.producers.remove(&name) {
            producer.shutdown().await?;
        } else if let Some(simple) = self.consumers.remove(&name) {
            simple.consumer.shutdown().await?;
        }
        Ok(Value::Null)
    }

    async fn run(&mut self, command: &str, args: &Value) -> Result<Value, ClientError> {
        match command {
            "ping" => Ok(json!("pong")),
            "start_producer" => self.start_producer(args).await,
            "send" => self.send(args).await,
            "send_in_transaction" => self.send_in_transaction(args).await,
            "start_simple" => self.start_simple(args).await,
            "receive" => self.receive(args).await,
            "ack" => self.ack(args).await,
            "seen" => Ok(self.seen(args)),
            "stop" => self.stop(args).await,
            _ => panic!("this client has no {command}"),
        }
    }
}

#[tokio::main]
async fn main() {
    let driver = Arc::new(Mutex::new(Driver::default()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let request: Value = serde_json::from_str(&line).unwrap();
        let command = text(&request, "cmd");
        if command == "quit" {
            break;
        }
        let driver = driver.clone();
        // The client panics where it cannot connect; the task takes the panic, and the next command is served.
        let done = tokio::spawn(async move { driver.lock().await.run(&command, &request["args"]).await }).await;
        let reply = match done {
            Ok(Ok(result)) => json!({"result": result}),
            Ok(Err(error)) => json!({"error": format!("{error:?}")}),
            Err(panic) => json!({"error": panic.to_string()}),
        };
        println!("{reply}");
    }
    println!("{}", json!({"result": null}));
}
