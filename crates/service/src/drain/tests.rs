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

#[tokio::test]
async fn an_open_input_does_not_drain() {
    let (reader, writer) = std::io::pipe().unwrap();
    let drain = Drain::new();
    drain.on_end_of(reader).unwrap();
    assert!(!drain.started());
    drop(writer);
    drain.wait().await;
}
