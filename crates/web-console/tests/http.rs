//! Requests to a console in tests, as a browser sends them.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(dead_code, reason = "each program uses a part")]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Time limit of every wait, far longer than any expected event takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
/// Interval between two looks at a state.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Header of a form from the console.
pub(crate) const OURS: &str = "Origin: http://localhost\r\n";

/// Sends a request over a connection, and returns the whole response.
pub(crate) async fn answered(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: impl AsRef<[u8]>) -> String {
    // A server that refuses a request may close before it has read everything.
    let _ = stream.write_all(request.as_ref()).await;
    let mut bytes = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("the response ends the connection");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a request over a connection of its own, and returns the whole response.
pub(crate) async fn send(console: SocketAddr, request: impl AsRef<[u8]>) -> String {
    answered(TcpStream::connect(console).await.unwrap(), request).await
}

/// Requests a page.
pub(crate) async fn get(console: SocketAddr, path: &str) -> String {
    send(console, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
}

/// Sends a form with these headers.
pub(crate) async fn post(console: SocketAddr, path: &str, headers: &str, form: &str) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}");
    send(console, format!("{head}Content-Length: {}\r\n\r\n{form}", form.len())).await
}

/// Requests a page until it contains `text`.
pub(crate) async fn until(console: SocketAddr, path: &str, text: &str) -> String {
    let begin = Instant::now();
    loop {
        let page = get(console, path).await;
        if page.contains(text) {
            return page;
        }
        assert!(begin.elapsed() < DEADLINE, "{text} is not in {page}");
        sleep(POLL).await;
    }
}

/// Reads until the text contains `part`.
pub(crate) async fn until_contains(stream: &mut TcpStream, part: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(part) {
        let read = timeout(DEADLINE, stream.read_buf(&mut bytes)).await.expect("more arrives").unwrap();
        assert!(read > 0, "{part} is not in {}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the status code of a response.
pub(crate) fn status(response: &str) -> u16 {
    response.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{response:?}"))
}

/// Returns the word against forged forms in a page.
pub(crate) fn word(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"word\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}
