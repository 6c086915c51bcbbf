# Cuts the solutions out of a source, as grader/regions.cc does. What stands in their place is kept.
/^ *\/\/ lab: solution/,/^ *\/\/ lab: (given|end)/{
  s/^( *)\/\/ lab: instead (.*)/\1\2/
  t
  d
}
