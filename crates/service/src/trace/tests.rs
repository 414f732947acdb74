use std::path::PathBuf;

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use prost::Message as _;
use tokio::net::TcpListener;

use super::*;
use crate::config::RunSection;
use crate::identity::Identity;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_traceparent_comes_back_as_it_was_written() {
    assert_eq!(TraceContext::parse(PARENT).unwrap().to_string(), PARENT);
    let (tracer, _records) = Tracer::new(1.0);
    let context = tracer.root("game").unwrap().context();
    assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
}

#[test]
fn a_malformed_traceparent_is_none() {
    for text in [
        "",
        "00",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0é",
    ] {
        assert_eq!(TraceContext::parse(text), None, "{text}");
    }
    let later = format!("cc{}-what-later-versions-say", &PARENT[2..]);
    assert_eq!(TraceContext::parse(&later), TraceContext::parse(PARENT));
}

#[test]
fn a_trace_that_is_not_recorded_is_none() {
    assert_eq!(TraceContext::parse(&PARENT.replace("-01", "-00")), None);
}

#[test]
fn the_share_of_traces_is_the_configured_one() {
    let begun = |share| {
        let (tracer, _records) = Tracer::new(share);
        (0..10_000).filter(|_| tracer.root("game").is_some()).count()
    };
    assert_eq!(begun(1.0), 10_000);
    assert_eq!(begun(0.0), 0);
    // The expected number is 300, with a standard deviation of 17; the tolerance is about six deviations.
    let few = begun(0.03);
    assert!((200..400).contains(&few), "{few}");
}

#[test]
fn a_child_has_the_trace_of_its_parent_and_an_id_of_its_own() {
    let (tracer, mut records) = Tracer::new(1.0);
    let game = tracer.root("game").unwrap();
    let search = game.child("search");
    let (above, below) = (game.context(), search.context());
    search.end();
    game.end();
    let (search, game) = (records.try_recv().unwrap(), records.try_recv().unwrap());
    assert_eq!(search.parent_span_id, above.span);
    assert_eq!(game.parent_span_id, [0; 0]);
    assert_eq!(above.trace, below.trace);
    assert_ne!(above.span, below.span);
    let times = [&game, &search].map(|span| (span.start_time_unix_nano, span.end_time_unix_nano));
    let [(game_begun, game_ended), (begun, ended)] = times;
    assert!(game_begun <= begun && begun <= ended && ended <= game_ended, "{times:?}");
}

#[test]
fn a_full_queue_drops_and_counts_and_never_blocks() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (tracer, _records) = Tracer::new(1.0);
    metrics::with_local_recorder(&recorder, || {
        for _ in 0..QUEUE_SPANS_MAX + 3 {
            tracer.root("game").unwrap().end();
        }
    });
    let text = recorder.handle().render();
    assert!(text.contains("zerofleet_telemetry_spans_total{result=\"queue_full\"} 3"), "{text}");
}

#[test]
fn an_instant_is_converted_to_unix_nanoseconds() {
    let epoch = Epoch { instant: Instant::now(), since_1970: Duration::from_secs(100) };
    assert_eq!(epoch.unix_ns(epoch.instant), 100_000_000_000);
    assert_eq!(epoch.unix_ns(epoch.instant + Duration::from_millis(5)), 100_005_000_000);
}

#[test]
fn a_trace_context_is_current_only_within_its_closure() {
    let context = TraceContext::parse(PARENT);
    assert_eq!(within(context, current), context);
    assert_eq!(within(context, || within(None, current)), None);
    assert_eq!(current(), None);
}

#[test]
fn long_texts_are_cut() {
    let (tracer, mut records) = Tracer::new(1.0);
    let mut span = tracer.root("game").unwrap();
    span.set("reason", "ä".repeat(300).as_str());
    span.end();
    let attribute = records.try_recv().unwrap().attributes.remove(0);
    let Some(Any::StringValue(text)) = attribute.value.unwrap().value else { panic!("it was a text") };
    assert_eq!(text.len(), 256);
}

#[test]
fn while_tracing_is_off_there_are_no_spans() {
    // No test in this file installs a tracer.
    assert!(root("game").is_none() && rare("publish").is_none());
    assert!(joined("store", TraceContext::parse(PARENT)).is_none());
}

fn identity() -> Identity {
    let run = RunSection { directory: PathBuf::from("runs/hex"), ..RunSection::default() };
    Identity::new("actor", &run, "")
}

/// A collector with scripted responses, of which the last is repeated, and the received requests.
async fn collector(answers: &'static [StatusCode]) -> (Collector, mpsc::UnboundedReceiver<Bytes>) {
    let (sent, requests) = mpsc::unbounded_channel();
    let count = Arc::new(AtomicU64::new(0));
    let answer = move |body: Bytes| async move {
        let index = usize::try_from(count.fetch_add(1, Ordering::Relaxed)).unwrap();
        sent.send(body).unwrap();
        answers[index.min(answers.len() - 1)]
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/traces", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (Collector::parse(&endpoint).unwrap(), requests)
}

#[tokio::test]
async fn queued_spans_are_exported_when_the_process_ends() {
    let (collector, mut requests) = collector(&[StatusCode::OK]).await;
    let (tracer, records) = Tracer::new(1.0);
    let exporter = Exporter::start(collector, identity(), records);
    (0..1000).for_each(|_| tracer.root("game").unwrap().end());
    exporter.finish().await;
    let mut names = 0;
    while let Ok(body) = requests.try_recv() {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let spans =
            request.resource_spans.iter().flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
        names += spans.filter(|span| span.name == "game").count();
    }
    assert_eq!(names, 1000);
}

#[tokio::test]
async fn spans_are_sent_again_to_an_unavailable_collector_and_dropped_after_a_refusal() {
    let answers = &[StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_REQUEST, StatusCode::OK];
    let (collector, mut requests) = collector(answers).await;
    let (tracer, records) = Tracer::new(1.0);
    let exporter = Exporter::start(collector, identity(), records);
    tracer.root("first").unwrap().end();
    let (once, again) = (requests.recv().await.unwrap(), requests.recv().await.unwrap());
    assert_eq!(once, again);
    tracer.root("second").unwrap().end();
    let next = requests.recv().await.unwrap();
    let holds = |name: &[u8]| next.windows(name.len()).any(|bytes| bytes == name);
    assert!(holds(b"second") && !holds(b"first"));
    exporter.finish().await;
}

#[tokio::test]
async fn a_collector_that_is_away_does_not_keep_a_process_from_ending() {
    let (tracer, records) = Tracer::new(1.0);
    let collector = Collector::parse("http://127.0.0.1:1").unwrap();
    let exporter = Exporter::start(collector, identity(), records);
    tracer.root("game").unwrap().end();
    tokio::time::timeout(Duration::from_secs(60), exporter.finish()).await.unwrap();
}
