use super::*;

fn prices(texts: &[&str]) -> Vec<Price> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn running(role: Role, hours: f64, runs: bool) -> Running {
    Running { role: Some(role), seconds: hours * SECONDS_PER_HOUR, runs }
}

#[test]
fn a_price_of_the_whole_fleet_runs_as_long_as_its_oldest_process() {
    let processes = [running(Role::Learner, 2.0, true), running(Role::Actor, 0.5, true)];
    assert_eq!(cost(&prices(&["1.5"]), &processes), Some(Cost { per_hour: 1.5, so_far: 3.0 }));
    assert_eq!(cost(&[], &processes), None);
}

#[test]
fn a_price_of_a_role_is_paid_for_each_process_while_it_runs() {
    let processes =
        [running(Role::Learner, 2.0, true), running(Role::Actor, 0.5, true), running(Role::Actor, 1.5, false)];
    let cost = cost(&prices(&["learner=3", "actor=0.25"]), &processes).unwrap();
    assert_eq!((cost.per_hour, cost.so_far), (3.25, 6.5), "who is gone costs no more, and did");
}

#[test]
fn prices_that_make_no_sense_are_refused() {
    for (text, reason) in
        [("x", "`x` is no price"), ("NaN", "a price is"), ("-1", "a price is"), ("cook=1", "`cook` is no role")]
    {
        let error = text.parse::<Price>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    assert!(check(&prices(&["1", "actor=1"])).is_err());
    assert!(check(&prices(&["actor=2", "actor=1"])).unwrap_err().to_string().contains("twice for actor"));
    assert!(check(&prices(&["actor=2", "learner=1"])).is_ok());
}
