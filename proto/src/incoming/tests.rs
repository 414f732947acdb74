use std::net::SocketAddr;

use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn listen(connections_max: usize) -> (Pin<Box<dyn Stream<Item = io::Result<Connection>>>>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (Box::pin(incoming(listener, connections_max, Security::default())), address)
}

#[tokio::test]
async fn a_connection_over_the_limit_is_closed_and_one_after_another_has_ended_is_served() {
    let (mut connections, address) = listen(1).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    let mut served = connections.next().await.unwrap().unwrap();
    assert!(served.tcp().nodelay().unwrap());
    served.write_all(b"served").await.unwrap();
    let mut answer = [0; 6];
    first.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"served");

    let mut second = TcpStream::connect(address).await.unwrap();
    let refused = tokio::select! {
        _ = connections.next() => panic!("there was no room for it"),
        read = second.read(&mut answer) => read,
    };
    // Closed, or reset where the close overtook what was sent.
    assert!(matches!(refused, Ok(0) | Err(_)));

    drop(served);
    let _third = TcpStream::connect(address).await.unwrap();
    connections.next().await.unwrap().unwrap();
}
