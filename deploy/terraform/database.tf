# One secret for each service: the address of the database, with its own role. Their values are set by hand, so that no
# password is in Terraform's state: gcloud secrets versions add catalog-writer-database-url --data-file=-

resource "google_secret_manager_secret" "database_url" {
  for_each  = toset(["catalog-writer", "catalog-reader"])
  secret_id = "${each.key}-database-url"
  replication {
    auto {}
  }
}

resource "google_secret_manager_secret_iam_member" "writer_reads_its_own" {
  secret_id = google_secret_manager_secret.database_url["catalog-writer"].id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.writer.member
}

resource "google_secret_manager_secret_iam_member" "reader_reads_its_own" {
  secret_id = google_secret_manager_secret.database_url["catalog-reader"].id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.reader.member
}

resource "google_project_iam_member" "connects_to_cloud_sql" {
  for_each = { writer = google_service_account.writer.member, reader = google_service_account.reader.member }
  project  = var.project
  role     = "roles/cloudsql.client"
  member   = each.value
}
