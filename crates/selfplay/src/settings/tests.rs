use super::*;

#[test]
fn a_cut_falls_at_its_ply() {
    let temperature = Temperature { early: 1.0, late: 0.0, decay: TemperatureDecay::Cut { plies: 30 } };
    assert_eq!((temperature.at(29), temperature.at(30)), (1.0, 0.0));
}

#[test]
fn a_half_life_does_half_of_the_way() {
    let temperature = Temperature { early: 1.0, late: 0.2, decay: TemperatureDecay::HalfLife { plies: 10.0 } };
    assert_eq!(temperature.at(0), 1.0);
    assert!((temperature.at(10) - 0.6).abs() < 1e-6);
    assert!((temperature.at(20) - 0.4).abs() < 1e-6);
    assert!(temperature.at(1000) >= 0.2);
}
