# Cuts the solutions out of a source, as grader/regions.cc does, and puts the lines of a lab's instead.txt in their place:
#
#   awk -f skeleton.awk labs/NN_name/instead.txt SOURCE
FILENAME ~ /instead\.txt$/ {
  key = $1 " " $2
  instead[key] = substr($0, length(key) + 2)
  next
}
/^ *\/\/ lab: (given|end)$/ { is_solution = 0; if ($3 == "given") next }
/^ *\/\/ lab: solution$/ {
  is_solution = 1
  key = region " " ++number
  if (key in instead) print substr($0, 1, index($0, "/") - 1) instead[key]
  next
}
/^ *\/\/ lab: / && $3 != "end" { region = $3; number = 0 }
!is_solution
