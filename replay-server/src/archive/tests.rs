mod interrupted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::memory::InMemory;
use tempfile::TempDir;

use super::*;
use crate::log::frame::Prologue;

/// Id for the next log.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Returns the bytes of segment 2 with `records`.
fn segment(records: &[&str]) -> Vec<u8> {
    let prologue = Prologue::new(SegmentNumber(2), [7; 32]);
    let mut bytes = prologue.encode();
    records.iter().for_each(|record| prologue.append(&mut bytes, 0, record.as_bytes()).unwrap());
    bytes
}

/// A directory with a log, and the store of the archive.
struct Bench {
    folder: TempDir,
    store: Arc<InMemory>,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store: Arc::new(InMemory::new()) }
    }

    fn objects(&self) -> Objects {
        Objects::new(Arc::clone(&self.store) as _, "runs/a".into())
    }

    fn archive(&self) -> Archive {
        self.archive_of(&self.folder)
    }

    fn archive_of(&self, folder: &TempDir) -> Archive {
        Archive::of(
            self.objects(),
            DiskFolder::new(folder.path()),
            NEXT_ID.fetch_add(1, Ordering::Relaxed),
            Planted::default(),
        )
    }

    fn write(&self, number: u64, content: impl AsRef<[u8]>) {
        std::fs::write(self.folder.path().join(SegmentNumber(number).file_name()), content).unwrap();
    }

    fn remove(&self, number: u64) {
        std::fs::remove_file(self.folder.path().join(SegmentNumber(number).file_name())).unwrap();
    }
}

/// Returns the names and contents of all segments.
fn files(folder: &TempDir) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| SegmentNumber::from_file_name(name).is_some()))
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

fn pass(copied: usize, dropped: usize) -> Pass {
    Pass { copied, dropped }
}

#[tokio::test]
async fn an_empty_folder_is_filled_from_the_archive() {
    let bench = Bench::new();
    (1..4).for_each(|number| bench.write(number, format!("segment {number}")));
    assert_eq!(bench.archive().keep_up().await.unwrap(), pass(3, 0));
    let fresh = tempfile::tempdir().unwrap();
    assert_eq!(bench.archive_of(&fresh).restore().await.unwrap(), 3);
    assert_eq!(files(&fresh), files(&bench.folder));
}

#[tokio::test]
async fn only_segments_that_have_grown_are_copied_again() {
    let bench = Bench::new();
    let mut archive = bench.archive();
    bench.write(1, "one");
    bench.write(2, "tw");
    assert_eq!(archive.keep_up().await.unwrap(), pass(2, 0));
    assert_eq!(archive.keep_up().await.unwrap(), pass(0, 0));
    bench.write(2, "two");
    bench.write(3, "three");
    assert_eq!(archive.keep_up().await.unwrap(), pass(2, 0));
    assert_eq!(archive.bytes(), 11);
    // A restarted server knows the sizes in the archive, but not whether the last upload was complete.
    let mut archive = bench.archive();
    assert_eq!(archive.restore().await.unwrap(), 0);
    assert_eq!(archive.keep_up().await.unwrap(), pass(1, 0));
}

/// A pass may copy the bytes of a commit that is cut back after a failed sync.
#[tokio::test]
async fn a_segment_with_other_bytes_of_the_same_size_is_copied_again_also_once_it_is_closed() {
    let bench = Bench::new();
    let mut archive = bench.archive();
    for (first, second) in [("durable, failed", None), ("durable, others", None), ("durable, closed", Some("next"))] {
        bench.write(1, first);
        second.iter().for_each(|second| bench.write(2, second));
        assert_eq!(archive.keep_up().await.unwrap(), pass(1 + second.iter().count(), 0));
    }
    assert_eq!(archive.keep_up().await.unwrap(), pass(0, 0));
    let fresh = tempfile::tempdir().unwrap();
    bench.archive_of(&fresh).restore().await.unwrap();
    assert_eq!(files(&fresh), files(&bench.folder));
}

#[tokio::test]
async fn a_segment_dropped_by_the_log_is_dropped_from_the_archive() {
    let bench = Bench::new();
    let mut archive = bench.archive();
    (1..5).for_each(|number| bench.write(number, "text"));
    archive.keep_up().await.unwrap();
    bench.remove(1);
    bench.remove(2);
    assert_eq!(archive.keep_up().await.unwrap(), pass(0, 2));
    let fresh = tempfile::tempdir().unwrap();
    bench.archive_of(&fresh).restore().await.unwrap();
    assert_eq!(files(&fresh), files(&bench.folder));
}

#[tokio::test]
async fn an_emptied_folder_removes_nothing_from_the_archive() {
    let bench = Bench::new();
    let mut archive = bench.archive();
    bench.write(1, "text");
    archive.keep_up().await.unwrap();
    bench.remove(1);
    assert_eq!(archive.keep_up().await.unwrap(), pass(0, 0));
    assert_eq!(bench.archive().restore().await.unwrap(), 1);
}

#[tokio::test]
async fn a_copy_of_the_archive_is_complete_and_does_not_become_its_owner() {
    let (bench, elsewhere) = (Bench::new(), tempfile::tempdir().unwrap());
    (1..4).for_each(|number| bench.write(number, format!("segment {number}")));
    bench.archive().keep_up().await.unwrap();
    let owner = bench.objects().get(OWNER).await.unwrap();
    let copied = bench.archive_of(&elsewhere).copy_out().await.unwrap();
    assert_eq!(copied, Copied { segments: 3, bytes: 27 });
    assert_eq!(files(&elsewhere), files(&bench.folder));
    assert_eq!(bench.objects().get(OWNER).await.unwrap(), owner);
}

#[tokio::test]
async fn filling_a_folder_goes_on_where_it_was_interrupted() {
    let bench = Bench::new();
    (1..4).for_each(|number| bench.write(number, format!("segment {number}")));
    bench.archive().keep_up().await.unwrap();
    for number in 2..4 {
        bench.remove(number);
    }
    std::fs::write(bench.folder.path().join(RESTORING), "").unwrap();
    // Without the archive, the directory is not accepted as a log.
    let refused = check_restored(bench.folder.path()).unwrap_err().to_string();
    assert!(refused.contains("incomplete restore") && refused.contains("set replay.archive again"), "{refused}");
    assert_eq!(bench.archive().restore().await.unwrap(), 2);
    check_restored(bench.folder.path()).unwrap();
    let names: Vec<_> = files(&bench.folder).into_keys().collect();
    assert_eq!(names, [1, 2, 3].map(|number| SegmentNumber(number).file_name()));
}

#[tokio::test]
async fn the_archive_of_another_log_is_left_unchanged() {
    let bench = Bench::new();
    (1..4).for_each(|number| bench.write(number, "segment"));
    bench.archive().keep_up().await.unwrap();

    let other = Bench { folder: tempfile::tempdir().unwrap(), store: Arc::clone(&bench.store) };
    other.write(1, "segment");
    let later = other.archive().restore().await.unwrap_err();
    assert!(matches!(&later, ArchiveError::Foreign { .. }), "{later}");
    (1..5).for_each(|number| other.write(number, "another segment"));
    let differs = other.archive().restore().await.unwrap_err();
    assert!(differs.to_string().contains("7 bytes in the archive, 15 on disk"), "{differs}");
    assert_eq!(bench.archive().restore().await.unwrap(), 0, "its own log finds it unchanged");
}

#[tokio::test]
async fn of_two_logs_with_one_archive_the_second_neither_writes_nor_removes_anything() {
    let bench = Bench::new();
    let other = Bench { folder: tempfile::tempdir().unwrap(), store: Arc::clone(&bench.store) };
    bench.write(1, "first log");
    other.write(1, "other log");
    other.write(2, "more of it");
    let (mut first, mut second) = (bench.archive(), other.archive());
    first.keep_up().await.unwrap();
    // Sizes alone would not distinguish the two logs.
    for error in [second.keep_up().await.unwrap_err(), second.restore().await.unwrap_err()] {
        assert!(matches!(error, ArchiveError::Owned { .. }), "{error}");
    }
    let fresh = tempfile::tempdir().unwrap();
    bench.archive_of(&fresh).restore().await.unwrap();
    assert_eq!(files(&fresh), files(&bench.folder));
}

#[tokio::test]
async fn a_log_filled_from_the_archive_owns_it_and_the_one_before_writes_no_more() {
    let bench = Bench::new();
    let mut before = bench.archive();
    bench.write(1, "text");
    before.keep_up().await.unwrap();
    let fresh = tempfile::tempdir().unwrap();
    let mut after = bench.archive_of(&fresh);
    assert_eq!(after.restore().await.unwrap(), 1);
    bench.write(1, "text and more");
    assert!(matches!(before.keep_up().await.unwrap_err(), ArchiveError::Owned { .. }));
    assert_eq!(after.keep_up().await.unwrap(), pass(1, 0));
}

#[tokio::test]
async fn a_disk_that_was_set_back_goes_on_from_its_longer_copy() {
    let bench = Bench::new();
    bench.write(1, "one");
    bench.write(2, "two and more");
    bench.archive().keep_up().await.unwrap();
    bench.write(2, "two");
    assert_eq!(bench.archive().restore().await.unwrap(), 0);
    assert_eq!(files(&bench.folder)[&SegmentNumber(2).file_name()], "two and more");
}

/// Asserts that neither a start nor a pass changes the copy, if the server started while the store was unreachable.
async fn is_refused(bench: &Bench, reason: &str) {
    let (objects, name) = (bench.objects(), SegmentNumber(2).file_name());
    let copy = async || objects.get(&name).await.unwrap().unwrap();
    let before = copy().await;
    for error in [bench.archive().restore().await.unwrap_err(), bench.archive().keep_up().await.unwrap_err()] {
        assert!(matches!(&error, ArchiveError::Foreign { found } if found.contains(reason)), "{error}");
    }
    assert_eq!(copy().await, before);
}

#[tokio::test]
async fn a_copy_is_not_overwritten_by_a_segment_that_lacks_its_records() {
    let cases = [
        (vec![(2, segment(&["other"]))], "has different records"),
        // A disk that was rolled back and has outgrown the copy since.
        (vec![(2, segment(&["one", "other", "and more"]))], "has different records"),
        (vec![(2, segment(&["one"])), (3, segment(&[]))], "bytes in the archive"),
    ];
    for (local, reason) in cases {
        let bench = Bench::new();
        bench.write(1, "one");
        bench.write(2, segment(&["one", "two", "3"]));
        bench.archive().keep_up().await.unwrap();
        local.iter().for_each(|(number, content)| bench.write(*number, content));
        is_refused(&bench, reason).await;
    }
}

#[tokio::test]
async fn a_torn_record_in_the_copy_gives_way_to_what_was_written_in_its_place() {
    for torn in ["torn", "torn, and longer than all that was written in its place"] {
        let bench = Bench::new();
        bench.write(1, "one");
        let torn = segment(&["one", torn]);
        bench.write(2, &torn[..torn.len() - 1]);
        bench.archive().keep_up().await.unwrap();
        let written = segment(&["one", "other", "and more"]);
        bench.write(2, &written);
        let mut archive = bench.archive();
        assert_eq!(archive.restore().await.unwrap(), 0);
        assert_eq!(archive.keep_up().await.unwrap(), pass(1, 0));
        let name = SegmentNumber(2).file_name();
        assert_eq!(bench.objects().get(&name).await.unwrap(), Some(written.clone()));
        assert_eq!(std::fs::read(bench.folder.path().join(name)).unwrap(), written);
    }
}

#[tokio::test]
async fn a_segment_whose_copy_failed_is_copied_by_the_next_pass() {
    let (folder, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}/archive", place.path().display());
    let mut archive = Archive::open(&url, std::iter::empty(), folder.path()).unwrap();
    std::fs::write(folder.path().join(SegmentNumber(1).file_name()), "text").unwrap();
    // A file in place of the archive's directory makes the store fail.
    std::fs::write(place.path().join("archive"), "").unwrap();
    let error = archive.keep_up().await.unwrap_err();
    assert!(error.to_string().contains("in the archive"), "{error}");
    std::fs::remove_file(place.path().join("archive")).unwrap();
    assert_eq!(archive.keep_up().await.unwrap(), pass(1, 0));
}

#[test]
fn an_invalid_archive_address_is_refused_without_its_credentials() {
    let logged = Archive::of_process("s3://user:secret@bucket", Path::new("/")).unwrap_err().to_string();
    assert!(!logged.contains("secret"), "{logged}");
    #[cfg(not(feature = "s3"))]
    assert!(Archive::of_process("s3://bucket", Path::new("/")).unwrap_err().to_string().contains("--features s3"));
}

/// Runs against a real store: `ZEROFLEET_S3=s3://BUCKET/PREFIX`, with the required variables `AWS_…`.
#[cfg(feature = "s3")]
#[tokio::test]
#[ignore = "needs a store that speaks S3"]
async fn a_log_goes_to_s3_and_comes_back() {
    let url = std::env::var("ZEROFLEET_S3").expect("ZEROFLEET_S3 names a bucket and a prefix");
    let (folder, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |folder: &TempDir| Archive::open(&url, std::env::vars(), folder.path()).unwrap();
    for number in 1..4 {
        std::fs::write(folder.path().join(SegmentNumber(number).file_name()), vec![7; 1 << 20]).unwrap();
    }
    let mut archive = open(&folder);
    assert_eq!(archive.keep_up().await.unwrap(), pass(3, 0));
    assert_eq!(open(&fresh).restore().await.unwrap(), 3);
    assert_eq!(files(&fresh), files(&folder));
    std::fs::remove_file(folder.path().join(SegmentNumber(1).file_name())).unwrap();
    assert_eq!(archive.keep_up().await.unwrap(), pass(0, 1));
    for number in 2..4 {
        archive.store.remove(&SegmentNumber(number).file_name()).await.unwrap();
    }
}
