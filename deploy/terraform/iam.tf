# Each service may do what it does, on what it does it with, and nothing more. There is no grant on the project but
# those for its own database.

resource "google_service_account" "writer" {
  account_id   = "catalog-writer"
  display_name = "Catalog, write side: API and relay"
}

resource "google_service_account" "reader" {
  account_id   = "catalog-reader"
  display_name = "Catalog, read side: API and consumer"
}

resource "google_pubsub_topic_iam_member" "writer_publishes" {
  topic  = google_pubsub_topic.events.name
  role   = "roles/pubsub.publisher"
  member = google_service_account.writer.member
}

resource "google_pubsub_subscription_iam_member" "reader_subscribes" {
  subscription = google_pubsub_subscription.reader.name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.reader.member
}

# What cannot be read is buried by the consumer itself.
resource "google_pubsub_topic_iam_member" "reader_buries" {
  topic  = google_pubsub_topic.dead_letters.name
  role   = "roles/pubsub.publisher"
  member = google_service_account.reader.member
}

# At their start both look whether all is there. They could not create it.
resource "google_pubsub_topic_iam_member" "look_at_topics" {
  for_each = {
    for pair in setproduct(["writer", "reader"], [google_pubsub_topic.events.name, google_pubsub_topic.dead_letters.name]) :
    "${pair[0]} ${pair[1]}" => { who = pair[0], topic = pair[1] }
  }
  topic  = each.value.topic
  role   = "roles/pubsub.viewer"
  member = each.value.who == "writer" ? google_service_account.writer.member : google_service_account.reader.member
}

resource "google_pubsub_subscription_iam_member" "reader_looks" {
  subscription = google_pubsub_subscription.reader.name
  role         = "roles/pubsub.viewer"
  member       = google_service_account.reader.member
}

resource "google_pubsub_subscription_iam_member" "look_at_dead_letters" {
  for_each     = { writer = google_service_account.writer.member, reader = google_service_account.reader.member }
  subscription = google_pubsub_subscription.dead_letters.name
  role         = "roles/pubsub.viewer"
  member       = each.value
}

# It serves their number. Who may not take them, even to give them back, cannot count them.
resource "google_pubsub_subscription_iam_member" "reader_counts_dead_letters" {
  subscription = google_pubsub_subscription.dead_letters.name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.reader.member
}

# Without these two grants Pub/Sub cannot dead-letter, and delivers for ever.
resource "google_pubsub_topic_iam_member" "pubsub_buries" {
  topic  = google_pubsub_topic.dead_letters.name
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "pubsub_forwards" {
  subscription = google_pubsub_subscription.reader.name
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
