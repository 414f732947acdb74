use proto::replay::{Choice, Revisable, ReviseRefusal, Revised, Reviser};

use super::*;

fn reviser(server: &Server) -> Reviser {
    Reviser::new(&format!("http://{}", server.running.address)).unwrap()
}

fn choice(older_than: u64) -> Choice {
    Choice { table: "main".to_owned(), older_than: WeightsVersion(older_than) }
}

/// Returns a trajectory of these tests, which have version 7; `value` and `version` distinguish a revision.
fn searched(sequence: u64, value: f32, version: u64) -> Trajectory {
    message_of(1, sequence, value, version).try_into().unwrap()
}

async fn get(server: &Server, sequence: u64) -> v1::GetResponse {
    let trajectory = Some(v1::TrajectoryId { actor: 1, epoch: 1, sequence });
    server.client.clone().get(v1::GetRequest { trajectory }).await.unwrap().into_inner()
}

fn wide(replay: &mut ReplaySection) {
    replay.main.error_items = 1e9;
}

#[tokio::test]
async fn a_revision_is_drawn_from_then_on_survives_a_restart_and_counts_neither_as_insert_nor_as_sample() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    server.insert_all([0]).await;
    let before = server.stats().await;
    let reviser_of = reviser(&server);
    let chosen = reviser_of.choose(choice(9)).await.unwrap().unwrap();
    assert_eq!((chosen.trajectory.clone(), chosen.revision), (searched(0, 0.5, 7), 0));
    let revised = Revisable { trajectory: searched(0, -0.25, 9), revision: 0 };
    assert_eq!(reviser_of.revise(revised.clone()).await.unwrap(), Revised::Replaced(1));
    // A lost reply leads to a second request: the same revision then changes nothing.
    let again = reviser_of.revise(revised).await.unwrap();
    assert!(matches!(again, Revised::Refused(ReviseRefusal::Stale, _)), "{again:?}");
    assert_eq!(reviser_of.choose(choice(9)).await.unwrap(), None);
    let after = server.stats().await;
    let counts = |stats: &v1::TableStats| {
        (stats.trajectories_inserted_total, stats.items_inserted_total, stats.samples_total, stats.duplicates_total)
    };
    assert_eq!(counts(&before), counts(&after));
    server.stop().await;

    let server = serve_with(directory.path(), wide).await;
    assert_eq!(counts(&server.stats().await), counts(&before));
    let located = get(&server, 0).await;
    assert_eq!(located.revision, 1);
    assert!(located.revised_unix_ms >= located.inserted_unix_ms);
    let (requests, mut batches) = server.sample().await;
    requests.send(open(3)).await.unwrap();
    requests.send(credit(1)).await.unwrap();
    let Some(Out::Batch(batch)) = batches.message().await.unwrap().unwrap().message else { panic!("no batch") };
    for sample in batch.samples {
        let sample: experience::Sample = sample.try_into().unwrap();
        assert!(sample.segment.steps().all(|step| step.kind.value() == Some(-0.25)));
    }
    let next = Revisable { trajectory: searched(0, 0.75, 10), revision: 1 };
    assert_eq!(reviser(&server).revise(next).await.unwrap(), Revised::Replaced(2));
    server.stop().await;
}

#[tokio::test]
async fn each_refusal_of_a_revision_has_its_status_and_names_what_was_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    server.insert_all([0]).await;
    let mut client = server.client.clone();
    let mut revise = async |trajectory: v1::Trajectory, revision| {
        client.revise(v1::ReviseRequest { trajectory: Some(trajectory), revision }).await.unwrap_err()
    };
    let valid = || message_of(1, 0, -0.25, 9);
    let cases = [
        (revise(valid(), 1).await, Code::Aborted, "has revision 0, the searches are based on revision 1"),
        (revise(message_of(1, 5, 0.0, 9), 0).await, Code::NotFound, "no table holds trajectory"),
        (revise(message_of(1, 0, 0.0, 6), 0).await, Code::FailedPrecondition, "have weights v7"),
        (revise(v1::Trajectory { id: None, ..valid() }, 0).await, Code::InvalidArgument, "trajectory.id: is missing"),
        (revise(v1::Trajectory { columns: vec![1].into(), ..valid() }, 0).await, Code::InvalidArgument, "columns"),
        (revise(valid(), u64::MAX).await, Code::InvalidArgument, "revision: is the maximum"),
    ];
    for (status, code, text) in cases {
        assert!(status.code() == code && status.message().contains(text), "{status:?}, expected {text}");
    }
    let trajectory = searched(0, -0.25, 9);
    let steps: Vec<Step> = trajectory.steps().chain(trajectory.steps()).collect();
    let longer = Trajectory::of(trajectory.id(), GAME, &steps, Outcome::Draw).unwrap();
    let status = revise(longer.into(), 0).await;
    assert!(status.code() == Code::InvalidArgument && status.message().starts_with("trajectory.plies"), "{status:?}");
    assert_eq!(get(&server, 0).await.revision, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_choice_from_an_unknown_table_or_for_no_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve_with(directory.path(), wide).await;
    let mut client = server.client.clone();
    let mut choose = async |table: &str, older_than| {
        client.choose(v1::ChooseRequest { table: table.to_owned(), older_than }).await.map(tonic::Response::into_inner)
    };
    assert_eq!(choose("", 3).await.unwrap().trajectory, None, "the table is empty");
    assert_eq!(choose("late", 3).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(choose("", 0).await.unwrap_err().code(), Code::InvalidArgument);
    server.stop().await;
}
