//! The console of `zerofleet train`, over HTTP. The processes are found in `/proc`, thus on Linux only.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::TrainingRun;

const DEADLINE: Duration = Duration::from_secs(90);

/// Returns the id of the console process of a run below `runs`.
fn console_process(runs: &Path) -> Option<String> {
    let runs = runs.display().to_string();
    let is_console = |id: &String| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("\0console\0--exit-with-parent") && line.contains(&runs)
    };
    let names = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.parse::<u32>().is_ok()).find(is_console)
}

/// Returns the overview of the console that a supervisor has announced; `None` while it does not respond.
fn overview(run: &TrainingRun) -> Option<String> {
    let output = run.output();
    let address = output.split_once("console: http://")?.1.split_whitespace().next()?;
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
    let killed = console_process(folder.path()).unwrap();
    assert!(Command::new("kill").args(["-9", &killed]).status().unwrap().success());
    run.until("the console shows the restart", DEADLINE, |run| shows(run, "console was restarted")).unwrap();
    assert!(console_process(folder.path()).is_some_and(|id| id != killed));
    let output = run.stop().unwrap();
    assert!(output.text.contains("console was killed by signal 9, restarting in 0.5 s"), "{}", output.text);
    assert_eq!(console_process(folder.path()), None, "the console ends with the training");
}
