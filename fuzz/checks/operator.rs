//! Requests from operators, from a learner, and from actors that search stored trajectories again.

use experience::Limits;
use prost::Message as _;
use proto::limits::{NAME_BYTES_MAX, PRIORITIES_MAX, REASON_BYTES_MAX, SEARCH_PAGE_MAX, STEPS_MAX, TABLE_KEYS_MAX};
use proto::replay::{
    Choice, ListQuery, PriorityUpdate, Quarantine, Report, Revisable, SearchQuery, Suspect, TableChange,
    change_from_wire, revision_from_wire, v1,
};
use replay_server::table_service::Search;
use run_file::replay::{LiveTable, TableSection};

/// Checks that any bytes are a request or are refused. An accepted request must be within the limits and survive
/// conversions. After an accepted table change, the log must restore the same table.
///
/// The first byte chooses the request.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind & 15 {
        0 => {
            let quarantine = survives::<v1::QuarantineRequest, Quarantine>(bytes);
            assert!(quarantine.is_none_or(|quarantine| quarantine.reason.len() <= REASON_BYTES_MAX));
        }
        1 => drop(survives::<v1::ReleaseRequest, Suspect>(bytes)),
        2 => {
            let Some(update) = survives::<v1::UpdatePrioritiesRequest, PriorityUpdate>(bytes) else { return };
            is_name(&update.table);
            assert!(update.priorities.len() <= PRIORITIES_MAX);
            for item in update.priorities {
                assert!(item.priority >= 0.0 && item.priority.is_finite() && item.ply < STEPS_MAX, "{item:?}");
            }
        }
        3 => {
            let query = survives::<v1::ListRequest, ListQuery>(bytes);
            query.iter().for_each(|query| is_name(&query.table));
        }
        4 => {
            let report = survives::<v1::ReportRequest, Report>(bytes);
            assert!(report.is_none_or(|report| report.ply < STEPS_MAX && report.reason.len() <= REASON_BYTES_MAX));
        }
        5 => {
            let choice = survives::<v1::ChooseRequest, Choice>(bytes);
            assert!(choice.is_none_or(|choice| choice.older_than.0 > 0));
        }
        6 => {
            let limits = Limits { steps_max: 64, actions: 64 };
            let Ok(message) = v1::ReviseRequest::decode(bytes) else { return };
            let Ok(revisable) = revision_from_wire(message, limits) else { return };
            assert!(revisable.revision < u64::MAX && revisable.trajectory.plies() <= 64);
            let again = revision_from_wire(v1::ReviseRequest::from(revisable.clone()), limits);
            assert_eq!(again.as_ref(), Ok(&revisable));
        }
        7 => {
            let Ok(message) = v1::ConfigureRequest::decode(bytes) else { return };
            let Ok(change) = change_from_wire(message) else { return };
            assert_eq!(change_from_wire(change.clone()).as_ref(), Ok(&change));
            is_name(&change.table);
            assert!(change.settings.len() <= TABLE_KEYS_MAX);
            configure(&change);
        }
        _ => {
            let Some(query) = survives::<v1::SearchRequest, SearchQuery>(bytes) else { return };
            is_name(&query.table);
            assert!((1..=SEARCH_PAGE_MAX).contains(&query.limit));
            let Ok(mut search) = Search::new(query) else { return };
            let section = TableSection { name: "main".to_owned(), ..TableSection::default() };
            search.advance(&replay::Table::new(section.settings().expect("the defaults are valid").table));
            assert!(search.is_complete() && search.page().found.is_empty(), "an empty table");
        }
    }
}

/// Returns the request that a message stands for, after a round trip through a new message.
fn survives<M, T>(bytes: &[u8]) -> Option<T>
where
    M: prost::Message + Default + From<T>,
    T: TryFrom<M> + Clone + PartialEq + std::fmt::Debug,
{
    let request = T::try_from(M::decode(bytes).ok()?).ok()?;
    let again = T::try_from(M::from(request.clone())).ok();
    assert_eq!(again.as_ref(), Some(&request));
    Some(request)
}

fn is_name(name: &str) {
    assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "a name of {} bytes", name.len());
}

fn configure(change: &TableChange) {
    let served = TableSection { name: "late".to_owned(), ..TableSection::default() };
    let Ok(changed) = served.changed(&change.settings) else { return };
    assert_eq!((&changed.name, changed.blocks_inserts), (&served.name, served.blocks_inserts), "a fixed key changed");
    // The response lists the settings in force in the syntax of a request.
    assert_eq!(served.changed(&changed.live_settings()).as_ref(), Ok(&changed));
    let Ok(settings) = changed.settings() else { return };
    let restored = LiveTable::restored(&LiveTable::encode(&served, changed), &served);
    assert_eq!(restored, Some(settings), "the log restores other settings");
}

/// Returns a request of every kind.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds(trajectory: &experience::Trajectory) -> Vec<Vec<u8>> {
    let id = v1::TrajectoryId::from(trajectory.id());
    let quarantine = |suspect| Quarantine { suspect, reason: "its values are wrong".to_owned() };
    let item = |ply| v1::ItemPriority { trajectory: Some(id), ply, priority: 0.5 };
    let configure = |settings: &[(&str, &str)]| {
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        v1::ConfigureRequest { table: "late".to_owned(), settings }.encode_to_vec()
    };
    let revisable = Revisable { trajectory: trajectory.clone(), revision: 3 };
    let search = SearchQuery { quarantined: Some(false), limit: 9, ..SearchQuery::default() };
    let messages: Vec<(u8, Vec<u8>)> = vec![
        (7, configure(&[("selector", "prioritised"), ("exponent", "0.75")])),
        (7, configure(&[("min_items", "100"), ("samples_per_insert", "2"), ("age_max_hours", "1e-3")])),
        (7, configure(&[("error_items", "99999.5"), ("window_slope", "0.25"), ("lag_versions_max", "12")])),
        (0, v1::QuarantineRequest::from(quarantine(Suspect::Trajectory(trajectory.id()))).encode_to_vec()),
        (0, v1::QuarantineRequest::from(quarantine(Suspect::Actor(7))).encode_to_vec()),
        (1, v1::ReleaseRequest::from(Suspect::Actor(7)).encode_to_vec()),
        (
            2,
            v1::UpdatePrioritiesRequest { table: "late".to_owned(), priorities: vec![item(0), item(4)] }
                .encode_to_vec(),
        ),
        (3, v1::ListRequest { after: Some(id), limit: 9, table: String::new(), order: 0 }.encode_to_vec()),
        (3, v1::ListRequest { after: None, limit: 0, table: "late".to_owned(), order: 2 }.encode_to_vec()),
        (4, v1::ReportRequest { trajectory: Some(id), ply: 4, reason: "illegal".to_owned() }.encode_to_vec()),
        (5, v1::ChooseRequest { table: String::new(), older_than: 3 }.encode_to_vec()),
        (6, v1::ReviseRequest::from(revisable).encode_to_vec()),
        (8, v1::SearchRequest::from(SearchQuery::default()).encode_to_vec()),
        (8, v1::SearchRequest::from(SearchQuery { cursor: Some("1-2-0-0".to_owned()), ..search }).encode_to_vec()),
        (7, configure(&[("name", "other")])),
        (7, configure(&[("blocks_inserts ", "false")])),
        (7, configure(&[("blocks_inserts=false #", "")])),
        (7, configure(&[])),
    ];
    messages.into_iter().map(|(kind, message)| [&[kind], message.as_slice()].concat()).collect()
}
