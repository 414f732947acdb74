use experience::TotalWeight;

use super::*;

#[test]
fn items_weigh_one_each_but_for_selectors_that_weigh_them() {
    for selector in [Selector::Uniform, Selector::Fifo, Selector::Lifo, Selector::MinHeap, Selector::MaxHeap] {
        assert_eq!(table(by(selector), &["FF", "FfF"]).total_weight(), TotalWeight::of_items(4), "{selector:?}");
    }
    assert_eq!(table(prioritised(0.5), &[]).total_weight(), TotalWeight::default());
}

#[test]
fn only_what_the_window_reaches_weighs_something() {
    let settings = TableSettings { window: window(2, 1000), ..prioritised(1.0) };
    let table = table(settings, &["FFFFFFFF"]);
    assert!(table.window_items() < 8, "{}", table.window_items());
    assert_eq!(table.total_weight(), TotalWeight::of_items(table.window_items()));
}

#[test]
fn what_an_item_weighs_by_its_priority_divided_by_the_mass_is_its_probability() {
    let mut table = table(prioritised(0.5), &["FFFF"]);
    let key = |ply| ItemKey { trajectory: id(0), ply };
    table.update_priorities(&[(key(0), 4.0), (key(1), 9.0), (key(2), 16.0), (key(3), 0.0)]).unwrap();
    assert_eq!(table.total_weight(), TotalWeight { weight: 2.0 + 3.0 + 4.0, log2_scale: 0.0 });
    let mut rng = rng();
    for _ in 0..20 {
        let drawn = table.sample(&mut rng).unwrap();
        assert!((drawn.probability * 9.0 - (drawn.ply() + 2) as f64).abs() < 1e-12, "{drawn:?}");
    }
}

#[test]
fn total_weights_by_staleness_have_one_unit_whatever_version_weighs_one() {
    let settings = by(Selector::StalenessAware { half_life_versions: 2.0 });
    let of_versions = |versions: &[u64]| {
        let mut table = Table::new(settings);
        for (sequence, &version) in (0..).zip(versions) {
            let _ = table.insert(trajectory_by(id(sequence), "F", version), Duration::ZERO);
        }
        // Takes another version for the one that weighs one, if it must.
        let _ = table.sample(&mut rng());
        table.total_weight()
    };
    let (old, new) = (of_versions(&[10_000, 10_002]), of_versions(&[10_004]));
    // Newer by one half-life than the newer of two, of which the older weighs half.
    let shares = TotalWeight::shares(&[old, new]);
    assert!((shares[0] - 1.5 / 3.5).abs() < 1e-9, "{shares:?} of {old:?} and {new:?}");
    assert_eq!(TotalWeight::shares(&[of_versions(&[1]), new]), [0.0, 1.0]);
}
