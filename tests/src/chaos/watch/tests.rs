use super::*;

fn looking(promises: Promises) -> Looking {
    Looking { name: "it".into(), admin: 0, promises, state: Arc::default(), stop: Arc::default() }
}

fn look(at: &Looking, text: &str) {
    let (now, life) = (Instant::now(), locked(&at.state).life);
    at.see(Sample { began: now, ended: now, life, values: values(text) });
}

fn begin_life(of: &Looking, floor: f64) {
    Watch { state: Arc::clone(&of.state), stop: Arc::default(), thread: None }.begin_life(floor);
}

fn broken(at: &Looking) -> usize {
    locked(&at.state).broken.len()
}

#[test]
fn weights_that_go_backwards_are_told_also_over_lives_and_none_yet_is_no_fall() {
    let it = looking(Promises { never_falls: Some("version"), ..Promises::default() });
    for text in ["version 3", "version 4", "other 1", "version 0"] {
        look(&it, text);
    }
    begin_life(&it, 0.0);
    look(&it, "version 4");
    assert_eq!(broken(&it), 0);
    look(&it, "version 3");
    assert_eq!(broken(&it), 1);
}

#[test]
fn steps_may_fall_from_one_life_to_the_next_and_no_further_than_the_floor() {
    let it = looking(Promises { falls_to_floor: Some("steps"), ..Promises::default() });
    look(&it, "steps 100");
    begin_life(&it, 80.0);
    look(&it, "steps 0");
    look(&it, "steps 85");
    assert_eq!(broken(&it), 0);
    look(&it, "steps 84");
    assert_eq!(broken(&it), 1);
    begin_life(&it, 85.0);
    look(&it, "steps 84");
    assert_eq!(broken(&it), 2);
}

#[test]
fn what_was_seen_of_an_earlier_life_counts_for_nothing() {
    let it = looking(Promises { never_falls: Some("version"), ..Promises::default() });
    let now = Instant::now();
    let late = Sample { began: now, ended: now, life: 0, values: values("version 9") };
    begin_life(&it, 0.0);
    it.see(late);
    look(&it, "version 1");
    assert_eq!(broken(&it), 0);
}

#[test]
fn samples_are_known_by_name_and_labels() {
    let text = "# HELP of it\nplain 1\nwith{by=\"server\",other=\"a b\"} 2.5\n";
    let expected = [("plain", 1.0), ("with{by=\"server\",other=\"a b\"}", 2.5)];
    assert_eq!(values(text), expected.map(|(name, value)| (name.to_owned(), value)).into());
}
