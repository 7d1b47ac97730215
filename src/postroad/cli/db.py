"""db: Postroad's tables in the service's database."""

import click

from postroad.cli.output import Output
from postroad.cli.reach import require_database
from postroad.cli.site import Site, on_site
from postroad.stores import migrations


@click.group()
def db() -> None:
    """Create, update and inspect Postroad's tables."""


@db.command()
@on_site(argument=True, creates=True)
async def migrate(site: Site, out: Output) -> None:
    """Create the tables, or bring them up to date. Running it again changes nothing.

    \b
    Examples:
      postroad db migrate shop:road
      postroad db migrate --database-url postgresql://localhost/shop
    """
    done = await migrations.migrate(site.store, site.outboxes)
    if out.as_json:
        out.data({"database": site.store.address, "applied": [str(migration) for migration in done]})
        return
    for migration in done:
        out.say(f"applied {migration}", "green")
    out.say(f"{site.store.address} is up to date")


@db.command()
@on_site(argument=True)
async def status(site: Site, out: Output) -> None:
    """Which migrations are applied, which are pending."""
    known = migrations.all_migrations(site.store, site.outboxes)
    pending = await migrations.pending(site.store, site.outboxes)
    applied = [migration for migration in known if migration not in pending]
    if out.as_json:
        told = {"applied": [str(one) for one in applied], "pending": [str(one) for one in pending]}
        out.data({"database": site.store.address, **told})
        return
    out.table(("migration", "state"), [(one, "pending" if one in pending else "applied") for one in known])
    if pending:
        out.say(f"Run: postroad db migrate{site.again.replace(' --app', '')}", "yellow")
    else:
        out.say(f"{site.store.address} is up to date", "green")


@db.command()
@click.option("--all", "all_of_them", is_flag=True, help="Every migration, whether applied or not.")
@on_site(argument=True, creates=True, asks=False)
async def sql(site: Site, out: Output, all_of_them: bool) -> None:
    """Print the pending migrations as a script, for teams whose database takes only reviewed scripts.

    With --all the database is not even asked.

    \b
    Example:
      postroad db sql shop:road --all > postroad.sql
    """
    if all_of_them:
        chosen = migrations.all_migrations(site.store, site.outboxes)
    else:
        await require_database(site.store)
        chosen = await migrations.pending(site.store, site.outboxes)
    script = migrations.script(site.store, chosen)
    if out.as_json:
        out.data({"migrations": [str(migration) for migration in chosen], "sql": script})
    else:
        click.echo(script or "-- up to date")


@db.command()
@click.argument("table")
@click.option("--apply", "apply_it", is_flag=True, help="Carry the statements out instead of printing them.")
@on_site()
async def adopt(site: Site, out: Output, table: str, apply_it: bool) -> None:
    """Use an outbox TABLE that is there already: which column is which, and the ALTERs it needs.

    Nothing is changed without --apply.

    \b
    Example:
      postroad db adopt outbox_events --app shop:road
    """
    from postroad.stores.adopt import apply_adoption, plan_adoption  # only this command needs it

    plan = await plan_adoption(site.store, table)
    if apply_it:
        await apply_adoption(site.store, plan)
    if out.as_json:
        columns = dict(plan.outbox.columns)
        told = {"statements": list(plan.statements), "notes": list(plan.notes), "python": plan.python}
        out.data({"table": table, "applied": apply_it, "columns": columns, **told})
        return
    out.heading("Columns")
    out.table(("Postroad's", f"{table}'s"), list(plan.outbox.columns.items()))
    if not plan.statements:
        out.heading("Nothing has to be altered: the table has been adopted already")
    else:
        out.heading("Statements, applied" if apply_it else "Statements (--apply carries them out)")
    for statement in plan.statements:
        click.echo(f"{statement.rstrip(';')};")
    for note in plan.notes:
        out.say(f"Note: {note}", "yellow")
    out.heading("In your application")
    click.echo(f"Postroad(…, outboxes=[{plan.python}])")
