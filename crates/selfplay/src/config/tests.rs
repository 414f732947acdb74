use super::*;

#[test]
fn the_defaults_are_those_of_the_settings_and_stop_early() {
    let search = SearchSection::default().settings().unwrap();
    assert_eq!(search, SearchSettings { early_stop: EarlyStop::Decided, ..SearchSettings::default() });
    let settings = SelfplaySection::default().settings(search.clone()).unwrap();
    assert_eq!(settings, Settings { search, ..Settings::default() });
}

#[test]
fn a_value_out_of_range_is_named_with_its_key() {
    let section = SearchSection { dirichlet_fraction: 1.5, ..SearchSection::default() };
    assert_eq!(section.settings().unwrap_err().to_string(), "search.dirichlet_fraction must be from 0 to 1, not 1.5");
    let section = SelfplaySection { games: 0, ..SelfplaySection::default() };
    let error = section.settings(SearchSettings::default()).unwrap_err();
    assert_eq!(error.to_string(), "selfplay.games must be at least 1, not 0");
    let section = SelfplaySection { games: usize::MAX, ..SelfplaySection::default() };
    assert_eq!(section.settings(SearchSettings::default()).unwrap_err().key, "selfplay.games");
    let section = SelfplaySection { temperature_early: f32::NAN, ..SelfplaySection::default() };
    assert_eq!(section.settings(SearchSettings::default()).unwrap_err().key, "selfplay.temperature_early");
}

#[test]
fn words_choose_the_variants() {
    let section: SelfplaySection =
        toml::from_str("resignation = \"decided\"\ntemperature_decay = \"cut\"\ntemperature_plies = 30").unwrap();
    let settings = section.settings(SearchSettings::default()).unwrap();
    assert_eq!(settings.temperature.decay, TemperatureDecay::Cut { plies: 30 });
    assert!(matches!(settings.resignation, Resignation::Below { resigned: Resigned::Decided, .. }));
    let section: SearchSection = toml::from_str("root = \"gumbel\"").unwrap();
    assert_eq!(section.settings().unwrap().root, RootPolicy::GUMBEL);
}
