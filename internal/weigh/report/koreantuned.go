// SPDX-License-Identifier: Apache-2.0

package report

// koreanTuned are about the settings of hosts.
var koreanTuned = []phrase{
	{"what is each setting of the hosts worth", "호스트의 설정 하나하나가 얼마나 값어치가 있는가"}, {"What tuning is worth", "튜닝의 값어치"}, {"What tuning was worth", "튜닝의 효과"},
	// The item stays behind: labels go on after it.
	{"not tuned", "튜닝 없음"}, {"tuned by {}", "튜닝 {1}"}, {"Tuned", "튜닝"}, {"Settings changed", "바뀐 설정"}, {"Dropped", "폐기"}, {"Effect", "효과"}, {"nothing to change", "바꿀 것 없음"}, {"too few repeats", "반복 부족"}, {"{n} drops", "폐기 {1}"},
	{"Each subject with the kernel's own settings on all hosts (not tuned), with single items of `jeoul tune`, and with many at once.", "모든 호스트가 커널 자체의 설정일 때(튜닝 없음), `jeoul tune`의 항목 하나씩일 때, 여럿을 한꺼번에 적용했을 때의 각 대상입니다."},
	{"Effect: of {}, of p99 and of drops, against the same subject not tuned, where the ranges of all repeats lie apart; none where they do not. It takes {n} repeats to say so, and even then they lie apart by chance once in {n} times: repeat what looks like an effect.", "효과: 튜닝하지 않은 같은 대상 대비 {1}, p99, 폐기의 변화이며 전체 반복의 범위가 서로 떨어져 있을 때만 적고, 아니면 없음입니다. 그렇게 말하려면 {2}회 반복이 필요하고, 그래도 {3}번에 한 번은 우연히 떨어집니다. 효과처럼 보이는 것은 다시 측정하십시오."},
	{"Nothing to change: the hosts had the item's value, or a better one, by themselves, or have no such setting.", "바꿀 것 없음: 호스트가 처음부터 그 항목의 값이나 더 나은 값이었거나, 그런 설정이 없습니다."}, {"Dropped: connections at full listening queues, and frames at devices.", "폐기: 가득 찬 리스닝 큐의 연결과 장치의 프레임입니다."},
	{"{}: tuned by {}: {}.", "{1}: 튜닝 {2}: {3}."}, {"{}: without an effect that shows: {}.", "{1}: 드러나는 효과가 없는 것: {2}."}, {"{}: measured too few times ({n} are needed) to say anything of: {}.", "{1}: 측정 횟수가 모자라({2}회 필요) 말할 수 없는 것: {3}."}, {"{}: nothing to change, for the hosts have it by themselves, or cannot have it: {}.", "{1}: 호스트가 이미 그 값이거나 그런 설정이 없어 바꿀 것이 없는 것: {2}."},
	{"hosts have the kernel's own settings, but for what `jeoul tune` changes on all of them before a trial and takes back after it; web servers are started anew after each change, for a listening socket keeps the backlog that it began with", "호스트는 커널 자체의 설정이며, 시행 전에 `jeoul tune`이 모든 호스트에서 바꾸고 뒤에 되돌리는 것만 다름; 리스닝 소켓은 시작할 때의 백로그를 유지하므로 바꿀 때마다 웹 서버를 새로 시작함"},
	{"tuned by {}, every {}: set: {}", "튜닝 {1}, 모든 {2}: 설정: {3}"}, {"tuned by {}, every {}: could not be set: {}", "튜닝 {1}, 모든 {2}: 설정하지 못함: {3}"}, {"tuned by {}: nothing to change, the kernel's own value is as good", "튜닝 {1}: 바꿀 것 없음, 커널 자체의 값이 그만큼 좋음"}, {"{} from {} to {}", "{1} {2} → {3}"}, {"web", "웹 서버"},
	// What hosts are like before that.
	{"`jeoul tune check` found nothing on any host that matters", "`jeoul tune check`가 어느 호스트에서도 문제될 것을 찾지 못함"}, {"`jeoul tune check` on {}: {}", "`jeoul tune check`, {1}: {2}"}, {"`jeoul tune check` on {} to {} ({n}): {}", "`jeoul tune check`, {1}–{2}({3}대): {4}"}, {"{} (wanted: {})", "{1} (권장: {2})"}, {"it could not be looked at: {}", "살펴볼 수 없음: {1}"},
}
