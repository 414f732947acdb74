use super::*;

#[test]
fn the_table_tells_median_and_greatest_with_all_actors_as_one_service() {
    let recovery = |seconds| {
        let time = Duration::from_secs(seconds);
        Recovery { service: time, actors: time * 2, training: time * 3 }
    };
    let mut recoveries = Recoveries::default();
    for (actor, seconds) in [(0, 1), (1, 9), (2, 2)] {
        recoveries.after(Service::Actor(actor), Kind::Cut, recovery(seconds));
    }
    recoveries.after_two(recovery(4));
    let table = recoveries.table();
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert_eq!(rows[0], "| actor | cut off | 3 | 2.0 | 9.0 | 4.0 | 18.0 | 6.0 | 27.0 |");
    assert_eq!(rows[1], "| two of them | any, at once | 1 | 4.0 | 4.0 | 8.0 | 8.0 | 12.0 | 12.0 |");
    assert_eq!(rows.len(), 3);
}
