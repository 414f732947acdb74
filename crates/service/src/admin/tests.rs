use super::*;
use crate::net;

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let url = format!("http://{address}{path}");
    let ask = move || {
        let agent = ureq::Agent::new_with_config(ureq::config::Config::builder().http_status_as_error(false).build());
        let mut answer = agent.get(url).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test]
async fn metrics_health_and_readiness_are_served() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || metrics::counter!("games_total").increment(3));
    let readiness = Readiness::starting();
    let listener = net::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let admin = Admin::start(listener, recorder.handle(), readiness.clone()).unwrap();
    let address = admin.address();

    assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz").await, (503, "starting\n".to_owned()));
    readiness.ready();
    assert_eq!(get(address, "/readyz").await, (200, "ready\n".to_owned()));
    readiness.not_ready("waiting for weights");
    assert_eq!(get(address, "/readyz").await, (503, "waiting for weights\n".to_owned()));
    let (status, text) = get(address, "/metrics").await;
    assert_eq!((status, text.contains("games_total 3")), (200, true), "{text}");
    assert_eq!(get(address, "/nothing").await.0, 404);

    admin.stop().await;
    assert!(net::bind(address).await.is_ok(), "the port is free again");
}
