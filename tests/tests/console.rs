//! The console of `zerofleet train`, over HTTP. The processes are found in `/proc`, thus on Linux only.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tests::TrainingRun;

const DEADLINE: Duration = Duration::from_secs(90);

/// Returns the overview of the console that a supervisor has announced; `None` while it does not respond.
fn overview(run: &TrainingRun) -> Option<String> {
    let console = run.console()?;
    let address = console.strip_prefix("http://")?;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page)
}

#[test]
fn a_killed_console_is_restarted_at_the_same_address_and_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--game", "tic_tac_toe", "--actors", "1"];
    let mut run = TrainingRun::with_console(folder.path(), folder.path(), &options).unwrap();
    run.start().unwrap();
    let shows = |run: &TrainingRun, part: &str| overview(run).is_some_and(|page| page.contains(part));
    run.until("the console shows the processes", DEADLINE, |run| shows(run, "processes respond")).unwrap();
    let killed = run.process_id("console").unwrap();
    run.kill("console").unwrap();
    run.until("the console shows the restart", DEADLINE, |run| shows(run, "console was restarted")).unwrap();
    assert!(run.process_id("console").is_some_and(|id| id != killed));
    let output = run.stop().unwrap();
    assert!(output.text.contains("console was killed by signal 9, restarting in 0.5 s"), "{}", output.text);
    assert_eq!(run.process_id("console"), None, "the console ends with the training");
}
