# Summary of a ctest run: counts per label, skipped tests and their reasons, and one line of totals.
# usage: awk -f scripts/test_summary.awk LABELS RESULTS
#   LABELS   output of `ctest --show-only --verbose`    RESULTS  the file that `ctest --output-junit` wrote
# Without LABELS, any number of RESULTS are added up to the line of totals. Each failed test is named above it, with the last 30
# lines that it printed.

function text_of(xml) {
  gsub(/&lt;/, "<", xml); gsub(/&gt;/, ">", xml); gsub(/&quot;/, "\"", xml); gsub(/&apos;/, "'", xml); gsub(/&amp;/, "\\&", xml)
  return xml
}

function attribute(line, name) {
  if (!match(line, name "=\"[^\"]*\"")) return ""
  return text_of(substr(line, RSTART + length(name) + 2, RLENGTH - length(name) - 3))
}

function skip(reason, whose, how_many) {
  if (!(reason in skip_count)) order[++reasons] = reason
  skip_count[reason] += how_many
  if (!seen_skip[reason, whose]++) skips[reason] = skips[reason] (skips[reason] == "" ? "" : ", ") whose
}

function finish_case(    i, n, names, cases) {
  if (status == "run") outcome = "passed"
  else if (status == "fail" || (status == "notrun" && message !~ /^SKIP_/)) outcome = "failed"
  else outcome = "skipped"
  # An entry that is a file of tests counts for as many as have passed, and for those that were skipped.
  cases = outcome == "passed" && passed != "" ? passed : 1
  total[outcome] += cases
  if (outcome == "failed") {
    failures = failures sprintf("\nFAILED %s (%s)\n", name, FILENAME)
    for (i = printed > 30 ? printed - 29 : 1; i <= printed; i++) failures = failures "  " output[i] "\n"
  }
  n = split(labels[name], names, " ")
  for (i = 1; i <= n; i++) { seen[names[i]] = 1; count[names[i], outcome] += cases }
  if (outcome == "skipped") {
    if (reason == "") reason = status == "disabled" ? "disabled" : last_line
    if (reason == "") reason = "no reason given"
    # A suite stands for its cases: "Kinds/Suite.Case/value" -> "Kinds/Suite".
    suite = name
    sub(/\..*/, "", suite)
    skip(reason, suite, 1)
  }
  for (reason in parts) {
    total["skipped"] += parts[reason]
    for (i = 1; i <= n; i++) count[names[i], "skipped"] += parts[reason]
    skip(reason, name, parts[reason])
  }
  name = ""
}

# LABELS: a "Labels:" line stands before the "Test #n:" line it belongs to.
/^Labels: / { sub(/^Labels: /, ""); pending = $0; next }
/^ *Test +#[0-9]+: / { sub(/^ *Test +#[0-9]+: /, ""); labels[$0] = pending; pending = ""; next }

# RESULTS
/<testcase / { name = attribute($0, " name"); status = attribute($0, "status"); message = reason = last_line = ""; passed = ""; expect_reason = printed = 0; split("", parts); next }
/<\/testcase>/ { if (name != "") finish_case(); next }
/<skipped message=/ { message = attribute($0, "message"); next }
name != "" && !/^\t*<\/?(system-out|properties|property|failure|skipped)/ { output[++printed] = text_of($0) }
name != "" && expect_reason {                                            # GoogleTest: the line below "FILE:LINE: Skipped"
  reason = text_of($0); expect_reason = 0
  if (status == "run") parts[reason]++
}
name != "" && /: Skipped$/ { expect_reason = 1; next }
name != "" && /\[  PASSED  \] [0-9]+ test/ { passed = $0; sub(/^.*\[  PASSED  \] /, "", passed); passed += 0 }
name != "" && /SKIPPED [0-9]+: / {                                       # conftest.py: of the tests of a file
  line = $0; sub(/^.*SKIPPED /, "", line); part = line; sub(/^[0-9]+: /, "", part)
  parts[text_of(part)] += line + 0
}
name != "" && /SKIPPED: / { sub(/^.*SKIPPED: /, ""); reason = text_of($0) }  # our programs
name != "" && !/^\[|^<|^[ \t]*$/ { line = $0; sub(/^.*<system-out>/, "", line); if (line !~ /<\/system-out>/) last_line = text_of(line) }

END {
  for (label in seen) {
    if (!header++) printf "\n%-12s %8s %8s %8s\n", "label", "passed", "failed", "skipped"
    printf "%-12s %8d %8d %8d\n", label, count[label, "passed"], count[label, "failed"], count[label, "skipped"]
  }
  if (header && reasons) print "\nSkipped:"
  for (i = 1; header && i <= reasons; i++) printf "  %d: %s (%s)\n", skip_count[order[i]], order[i], skips[order[i]]
  printf "%s", failures
  printf "%s%d passed, %d failed, %d skipped\n", header ? "\n" : "", total["passed"], total["failed"], total["skipped"]
}
