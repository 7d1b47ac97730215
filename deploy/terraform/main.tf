# Topics, subscription, dead letters, service accounts and their rights. Tables: `postroad db migrate`; database roles:
# examples/catalog/roles.sql.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0, < 8.0"
    }
  }
}

variable "project" {
  type = string
}

variable "region" {
  type    = string
  default = "europe-west1"
}

provider "google" {
  project = var.project
  region  = var.region
}

data "google_project" "this" {}

locals {
  # Pub/Sub itself moves what nobody could handle, under this account.
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_topic" "events" {
  name                       = "catalog.video.events"
  message_retention_duration = "604800s"
}

resource "google_pubsub_topic" "dead_letters" {
  name                       = "catalog.video.events.dlq"
  message_retention_duration = "604800s"
}

resource "google_pubsub_subscription" "reader" {
  name                         = "catalog.video.events.catalog-reader"
  topic                        = google_pubsub_topic.events.id
  ack_deadline_seconds         = 60
  message_retention_duration   = "604800s"
  enable_message_ordering      = true
  enable_exactly_once_delivery = true

  expiration_policy {
    ttl = ""
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead_letters.id
    max_delivery_attempts = 5
  }
}

resource "google_pubsub_subscription" "dead_letters" {
  name                       = "catalog.video.events.dlq-monitor"
  topic                      = google_pubsub_topic.dead_letters.id
  ack_deadline_seconds       = 60
  message_retention_duration = "2678400s"

  expiration_policy {
    ttl = ""
  }
}
