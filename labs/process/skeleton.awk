# Cuts the solutions out of a source, as grader/regions.cc does, and puts the lines of a lab's instead.txt in their place:
#
#   awk -f skeleton.awk labs/NN_name/instead.txt SOURCE
#
# With -v calls=1, regions outside of anonymous namespaces are left out: engine.cc has functions in their place.
FILENAME ~ /instead\.txt$/ {
  key = $1 " " $2
  instead[key] = substr($0, length(key) + 2)
  next
}
/^namespace {$/ { is_anonymous = 1 }
/^}  \/\/ namespace$/ { is_anonymous = 0 }
/^ *\/\/ lab: end$/ && is_left_out { is_left_out = 0; next }
is_left_out { next }
/^ *\/\/ lab: / && calls && !is_anonymous && $3 !~ /^(given|end|solution)$/ { is_left_out = 1; next }
/^ *\/\/ lab: (given|end)$/ { is_solution = 0; if ($3 == "given") next }
/^ *\/\/ lab: solution$/ {
  is_solution = 1
  key = region " " ++number
  if (key in instead) print substr($0, 1, index($0, "/") - 1) instead[key]
  next
}
/^ *\/\/ lab: / && $3 != "end" { region = $3; number = 0 }
!is_solution
