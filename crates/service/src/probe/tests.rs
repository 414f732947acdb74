use std::net::TcpListener;
use std::thread;

use super::*;
use crate::{Admin, Readiness, net};

async fn ask(probe: Probe, admin: SocketAddr) -> Result<String, String> {
    tokio::task::spawn_blocking(move || probe.ask(admin).map_err(|error| error.to_string())).await.unwrap()
}

#[tokio::test]
async fn a_probe_says_what_the_admin_port_says() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let readiness = Readiness::starting();
    let listener = net::bind("0.0.0.0:0".parse().unwrap()).await.unwrap();
    let admin = Admin::start(listener, recorder.handle(), readiness.clone()).unwrap();
    // An address that stands for all of the machine's is asked on loopback.
    let address = admin.address();

    assert_eq!(ask(Probe::Health, address).await, Ok("ok\n".to_owned()));
    assert_eq!(ask(Probe::Ready, address).await, Err("503: starting".to_owned()));
    readiness.ready();
    assert_eq!(ask(Probe::Ready, address).await, Ok("ready\n".to_owned()));
    admin.stop().await;
    let error = ask(Probe::Health, address).await.unwrap_err();
    assert!(error.contains("127.0.0.1") && error.contains("does not answer"), "{error}");
}

#[test]
fn a_probe_without_a_port_says_what_it_needs() {
    let error = Probe::Ready.ask("127.0.0.1:0".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("--admin"), "{error}");
}

#[test]
fn what_is_no_admin_port_is_not_well() {
    for answer in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"\xff\xfe\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 16];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(answer).unwrap();
        });
        assert!(Probe::Health.ask(address).is_err(), "{answer:?}");
        server.join().unwrap();
    }
}

#[test]
fn an_endless_answer_is_read_to_its_bound_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Until the other end has enough.
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    assert!(Probe::Health.ask(address).is_err());
    server.join().unwrap();
}
