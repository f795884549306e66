//! `windrow init NAME`: a small pipeline with sample data that runs at once.
//!
//! Decides what the files hold and writes them into a new folder. The sample orders end today, so that
//! the pipeline's window, the last seven days, has rows in it. Reading arguments and telling the user
//! what comes next is left to the caller.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use chrono::{Days, NaiveDate};

/// The longest name, in bytes; file systems allow 255.
const MAX_NAME_BYTES: usize = 100;

/// How many days the sample orders cover, today included.
const SAMPLE_DAYS: u64 = 30;

/// Orders on each of these days.
const ORDERS_PER_DAY: u64 = 3;

/// The days that the pipeline's window goes back.
const WINDOW_DAYS: u64 = 7;

const CUSTOMERS: [(&str, &str); 6] = [
    ("Ada", "Norway"),
    ("Bruno", "Chile"),
    ("Chiara", "Italy"),
    ("Dmitri", "Norway"),
    ("Esi", "Ghana"),
    ("Farid", "Italy"),
];

/// Products with their price in cents.
const PRODUCTS: [(&str, u64); 5] = [
    ("lantern", 1_950),
    ("kettle", 3_400),
    ("rope", 875),
    ("tent", 12_900),
    ("blanket, wool", 4_525),
];

/// Why a project was not written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The name cannot be a folder's name everywhere.
    #[error(
        "`{name}` is no name for a pipeline: use letters, digits, `_`, `-` and `.`, beginning with a letter, \
         a digit or `_` and not ending in `.`, {MAX_NAME_BYTES} bytes at most"
    )]
    Name {
        /// What was asked for.
        name: String,
    },
    /// There is something at the project's place that would be mixed with it or lost.
    #[error("`{}` exists already and is not an empty folder", path.display())]
    Exists {
        /// The project's place.
        path: PathBuf,
    },
    /// A file or folder could not be read or written.
    #[error("cannot write `{}`", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Writes the project `name` into a folder of that name below `parent` and returns the folder.
///
/// # Errors
/// [`InitError::Name`] and [`InitError::Exists`] before anything is written, [`InitError::Io`] for what the system refuses.
pub fn create(parent: &Path, name: &str, today: NaiveDate) -> Result<PathBuf, InitError> {
    check_name(name)?;
    let folder = parent.join(name);
    let io_at = |path: &Path| {
        let path = path.to_owned();
        move |source| InitError::Io { path, source }
    };
    let occupied = match fs::read_dir(&folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => true,
        Err(error) => return Err(io_at(&folder)(error)),
    };
    if occupied {
        return Err(InitError::Exists { path: folder });
    }
    for (path, content) in files(name, today) {
        let path = folder.join(path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).map_err(io_at(above))?;
        }
        // Never over a file that somebody made in the meantime.
        File::create_new(&path)
            .and_then(|mut file| file.write_all(&content))
            .map_err(io_at(&path))?;
    }
    Ok(folder)
}

/// Refuses names that are no plain folder name on every system, paths among them.
///
/// # Errors
/// [`InitError::Name`].
pub fn check_name(name: &str) -> Result<(), InitError> {
    let inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let begins_well = name.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    if begins_well
        && name.chars().all(inner)
        && !name.ends_with('.')
        && name.len() <= MAX_NAME_BYTES
    {
        Ok(())
    } else {
        Err(InitError::Name {
            name: name.to_owned(),
        })
    }
}

/// The project's files: path within its folder, content.
pub fn files(name: &str, today: NaiveDate) -> Vec<(String, Vec<u8>)> {
    let half = SAMPLE_DAYS / 2;
    [
        ("windrow.yml", pipeline_file(name)),
        ("README.md", readme(name, today)),
        (".gitignore", "/lake/\n".to_owned()),
        ("transformations/sources.sql", SOURCES_SQL.to_owned()),
        ("transformations/sales.sql", SALES_SQL.to_owned()),
        ("data/orders/orders-1.csv", orders_csv(today, 0..half)),
        (
            "data/orders/orders-2.csv",
            orders_csv(today, half..SAMPLE_DAYS),
        ),
        ("data/customers/customers.jsonl", customers_jsonl()),
    ]
    .into_iter()
    .map(|(path, content)| (path.to_owned(), content.into_bytes()))
    .collect()
}

const SOURCES_SQL: &str = "\
-- What comes in: CSV and JSON files, read anew in each update. Relative paths start at windrow.yml.
CREATE TEMPORARY VIEW orders AS
SELECT order_id, order_date, customer_id, product, quantity, unit_price
FROM read_files(
  'data/orders',
  format => 'csv',
  header => true,
  schema => 'order_id BIGINT, order_date DATE, customer_id INT, product STRING, quantity INT, unit_price DECIMAL(10, 2)'
);

CREATE TEMPORARY VIEW customers AS
SELECT customer_id, name, country
FROM read_files(
  'data/customers',
  format => 'json',
  schema => 'customer_id INT, name STRING, country STRING'
);
";

const SALES_SQL: &str = "\
-- Each update computes the last seven days anew and replaces them in one commit. Older days stay as
-- they are, even when their source files are gone.
CREATE OR REFRESH STREAMING TABLE sales
PARTITIONED BY (order_date)
COMMENT 'Orders with their customer'
FLOW REPLACE WHERE order_date >= date_add(current_date(), -7) BY NAME
SELECT
  o.order_id,
  o.order_date,
  c.name AS customer,
  c.country,
  o.product,
  o.quantity,
  CAST(o.quantity * o.unit_price AS DECIMAL(12, 2)) AS amount
FROM orders AS o
JOIN customers AS c ON c.customer_id = o.customer_id;

-- Equal to its query after each update.
CREATE OR REFRESH MATERIALIZED VIEW sales_by_country
COMMENT 'Orders and their worth by country'
AS SELECT
  country,
  COUNT(*) AS order_count,
  SUM(amount) AS amount
FROM sales
GROUP BY country;
";

fn pipeline_file(name: &str) -> String {
    // YAML takes JSON's strings: a name such as `2026` or `yes` stays a text.
    let name = serde_json::Value::from(name);
    format!(
        "name: {name}\n\
         storage: lake            # a folder, or for example s3://bucket/path\n\
         libraries:\n  - glob: {{include: \"transformations/**\"}}\n"
    )
}

fn orders_csv(today: NaiveDate, days: std::ops::Range<u64>) -> String {
    let mut text = String::from("order_id,order_date,customer_id,product,quantity,unit_price\n");
    for day in days {
        let date = days_before(today, SAMPLE_DAYS - 1 - day);
        for order in day * ORDERS_PER_DAY..(day + 1) * ORDERS_PER_DAY {
            let (product, cents) = PRODUCTS[pick(order * 7 + day, PRODUCTS.len())];
            let _ = writeln!(
                text,
                "{},{date},{},{},{},{}.{:02}",
                1000 + order,
                pick(order * 5 + day, CUSTOMERS.len()) + 1,
                csv_field(product),
                order % 4 + 1,
                cents / 100,
                cents % 100,
            );
        }
    }
    text
}

fn customers_jsonl() -> String {
    let mut text = String::new();
    for (id, (name, country)) in (1..).zip(CUSTOMERS) {
        let line = serde_json::json!({"customer_id": id, "name": name, "country": country});
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Quotes a CSV field that needs it; the samples hold no quotes.
fn csv_field(text: &str) -> String {
    if text.contains(',') {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

fn pick(number: u64, count: usize) -> usize {
    (number % count as u64) as usize
}

fn days_before(today: NaiveDate, days: u64) -> NaiveDate {
    today.checked_sub_days(Days::new(days)).unwrap_or(today)
}

fn readme(name: &str, today: NaiveDate) -> String {
    let first = days_before(today, SAMPLE_DAYS - 1);
    let window = days_before(today, WINDOW_DAYS);
    let in_window = (WINDOW_DAYS + 1) * ORDERS_PER_DAY;
    let all = SAMPLE_DAYS * ORDERS_PER_DAY;
    format!(
        "# {name}

A pipeline of two tables over files in `data/`: {all} orders from {first} to {today}, and {customers} customers.

| file | holds |
| --- | --- |
| `windrow.yml` | the pipeline: its name, where its tables go, where its SQL is |
| `transformations/sources.sql` | the files, as two views |
| `transformations/sales.sql` | `sales`, of which each update replaces the last {WINDOW_DAYS} days, and `sales_by_country` over it |

Run these in this folder:

    windrow plan       # what an update would read and replace; writes nothing
    windrow run        # one update

The first update writes the {in_window} orders since {window}, no more: that is the window. The older ones come with a
backfill, week by week, each week in a commit of its own:

    windrow backfill --flow sales --from {first} --to {window} --by week
    windrow run        # brings sales_by_country up to date

Then change one of the last orders in `data/orders/orders-2.csv` and one of the first in `orders-1.csv`, and run again:
`sales` takes the first change over, and not the second, which lies outside the window. `windrow events` shows what happened so far. The tables in `lake/tables` are Delta tables
that any Delta reader opens.
",
        customers = CUSTOMERS.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn today() -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 3, 1).unwrap()
    }

    fn text_of(path: &str) -> String {
        let all = files("shop", today());
        let (_, content) = all.into_iter().find(|(name, _)| name == path).unwrap();
        String::from_utf8(content).unwrap()
    }

    #[test]
    fn orders_end_today_and_fill_the_window() {
        let text = text_of("data/orders/orders-1.csv") + &text_of("data/orders/orders-2.csv");
        let dates: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("order_id"))
            .map(|line| line.split(',').nth(1).unwrap())
            .collect();
        assert_eq!(dates.len(), 90);
        assert!(dates.is_sorted());
        assert_eq!(dates.first(), Some(&"2026-01-31"));
        assert_eq!(dates.last(), Some(&"2026-03-01"));
        let in_window = dates.iter().filter(|date| **date >= "2026-02-22").count();
        assert!(
            text_of("README.md")
                .contains(&format!("writes the {in_window} orders since 2026-02-22"))
        );
    }

    #[test]
    fn every_order_has_a_customer() {
        let customers = text_of("data/customers/customers.jsonl").lines().count();
        for line in text_of("data/orders/orders-2.csv").lines().skip(1) {
            let customer: usize = line.split(',').nth(2).unwrap().parse().unwrap();
            assert!((1..=customers).contains(&customer), "{line}");
        }
    }

    #[test]
    fn a_name_that_looks_like_a_number_stays_a_text() {
        let all = files("2026", today());
        let (_, content) = &all[0];
        assert!(content.starts_with(b"name: \"2026\"\n"));
    }

    #[test]
    fn names_that_are_no_folder_names_are_refused() {
        for name in ["shop", "_a", "2026", "a.b-c_d", "bücher"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(101);
        for name in [
            "", ".", "..", "a/b", "a\\b", "/tmp/x", "a b", "-x", ".hidden", "x.", "a\0b", "a\nb",
            "a:b", &long,
        ] {
            let parent = tempfile::tempdir().unwrap();
            let error = create(parent.path(), name, today()).unwrap_err();
            assert!(matches!(error, InitError::Name { .. }), "{name:?}");
            assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn an_empty_folder_is_taken_and_any_other_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("shop")).unwrap();
        let folder = create(parent.path(), "shop", today()).unwrap();
        for (path, content) in files("shop", today()) {
            assert_eq!(fs::read(folder.join(path)).unwrap(), content);
        }

        fs::write(folder.join("README.md"), "mine").unwrap();
        let again = create(parent.path(), "shop", today());
        assert!(matches!(again, Err(InitError::Exists { .. })));
        assert_eq!(fs::read(folder.join("README.md")).unwrap(), b"mine");

        fs::write(parent.path().join("file"), "x").unwrap();
        let over_file = create(parent.path(), "file", today());
        assert!(matches!(over_file, Err(InitError::Exists { .. })));
    }
}
