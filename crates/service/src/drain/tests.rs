use std::io::Write as _;

use super::*;

#[tokio::test]
async fn every_clone_hears_of_it() {
    let drain = Drain::new();
    let clone = drain.clone();
    assert!(!clone.started());
    drain.start();
    clone.wait().await;
    assert!(clone.started());
}

#[tokio::test]
async fn the_end_of_standard_input_drains() {
    let drain = Drain::new();
    drain.on_end_of(&b"words that mean nothing"[..]).unwrap();
    drain.wait().await;
}

/// An input that tells whenever more is asked of it.
struct Announced<R> {
    input: R,
    asked: std::sync::mpsc::Sender<()>,
}

impl<R: Read> Read for Announced<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.asked.send(()).unwrap();
        self.input.read(buffer)
    }
}

#[tokio::test]
async fn an_open_input_does_not_drain() {
    let (input, mut writer) = std::io::pipe().unwrap();
    let (asked, asks) = std::sync::mpsc::channel();
    let drain = Drain::new();
    drain.on_end_of(Announced { input, asked }).unwrap();
    writer.write_all(b"still here").unwrap();
    // Whoever asks for more has read what was written and done with it.
    asks.recv().unwrap();
    asks.recv().unwrap();
    assert!(!drain.started());
    drop(writer);
    drain.wait().await;
}
