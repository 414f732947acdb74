use super::*;

fn admin(text: &str) -> AdminAddress {
    text.parse().unwrap()
}

#[test]
fn an_admin_port_is_a_host_and_a_port() {
    assert_eq!(admin("actor:9100"), AdminAddress { host: "actor".to_owned(), port: 9100 });
    assert_eq!(admin("[::1]:9100").host, "::1");
    for wrong in ["actor", ":9100", "actor:", "actor:99999", "http://actor:9100"] {
        assert!(wrong.parse::<AdminAddress>().is_err(), "{wrong}");
    }
}

#[test]
fn every_address_is_one_process_and_a_name_that_leads_nowhere_is_none() {
    let names = [admin("127.0.0.1:1"), admin("127.0.0.1:2"), admin("127.0.0.1:1"), admin("no.such.host.invalid:1")];
    let mut sources = Sources::new(&names, None, Path::new("runs")).unwrap();
    let found = sources.processes(Instant::now());
    let addresses: Vec<String> = found.iter().map(|(address, _)| address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:1", "127.0.0.1:2"]);
}

#[test]
fn a_run_is_where_its_supervisor_says_and_is_read_again() {
    let runs = tempfile::tempdir().unwrap();
    let run = runs.path().join("first");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("config.toml"), "").unwrap();
    let open = || Sources::new(&[], Some("first"), runs.path());
    assert!(open().unwrap_err().to_string().contains("is not being trained"));
    let list = |port: u16| format!(r#"[{{"name":"actor-0","role":"actor","admin":"127.0.0.1:{port}"}}]"#);
    std::fs::write(run.join("fleet.json"), list(4001)).unwrap();
    let (mut sources, now) = (open().unwrap(), Instant::now());
    assert_eq!(sources.processes(now), [("127.0.0.1:4001".parse().unwrap(), "actor-0".to_owned())]);
    std::fs::write(run.join("fleet.json"), list(4002)).unwrap();
    assert_eq!(sources.processes(now)[0].0.port(), 4001, "not at every look");
    let later = now + LOOKUP_INTERVAL;
    assert_eq!(sources.processes(later)[0].0.port(), 4002);
    std::fs::write(run.join("fleet.json"), "not JSON").unwrap();
    assert!(sources.processes(later + LOOKUP_INTERVAL).is_empty(), "and what is no list ends nothing");
}
