#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# check-abi.sh LIBRARY SONAME MAP: the library exports the symbols of the
# version script and nothing else, each under its version.
set -eu

lib=$1 soname=$2 map=$3

got_soname=$(readelf -d "$lib" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [ "$got_soname" != "$soname" ]; then
	echo "not ok - SONAME is '$got_soname', not '$soname'"
	exit 1
fi

want=$(awk '/^lib/ { node = $1 } /^\t\tnuma/ { sub(";", "", $1); print $1 "@@" node }' \
	"$map" | sort)
got=$(readelf --dyn-syms --wide "$lib" |
	awk '$5 == "GLOBAL" && $7 != "UND" && $4 == "FUNC" { print $8 }' | sort)
if [ "$want" != "$got" ]; then
	printf 'not ok - exported symbols\nwant:\n%s\ngot:\n%s\n' "$want" "$got"
	exit 1
fi
echo "ok - $soname exports the symbols of its version script and no other"
