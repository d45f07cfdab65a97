// SPDX-License-Identifier: Apache-2.0

package report

import "sync"

// koreanTexts are the Korean texts of reports, a list for each kind of text.
var koreanTexts = sync.OnceValue(func() *translator {
	return newTranslator(koreanWords, koreanParams, koreanColumns, koreanDocument, koreanRequests, koreanVerdicts,
		koreanChanges, koreanSilence, koreanFloods, koreanPlane, koreanPackets, koreanWire, koreanWireVerdicts, koreanWireNotes,
		koreanDNS, koreanLocal, koreanTransactions, koreanOpen, koreanTuned, koreanInstructions, koreanFigures, koreanNotes, koreanLaboratory, koreanSubjects, koreanObstacles)
})

// koreanWords are single words, and what joins texts.
var koreanWords = []phrase{
	{" and ", ", "},
	{"none", "없음"}, {"unknown", "알 수 없음"}, {"balancer", "밸런서"}, {"client", "클라이언트"}, {"backend", "백엔드"}, {"switch", "스위치"},
	{"balancer {n}", "밸런서 {1}"}, {"client {n}", "클라이언트 {1}"}, {"backend {n}", "백엔드 {1}"}, {"none {n}", "없음 {1}"}, {"unknown {n}", "알 수 없음 {1}"},
	{"{} balancer {n}", "{1} 밸런서 {2}"}, {"{} client {n}", "{1} 클라이언트 {2}"}, {"{} backend {n}", "{1} 백엔드 {2}"},
	{"{} none {n}", "{1} 없음 {2}"}, {"{} unknown {n}", "{1} 알 수 없음 {2}"},
	{"quick", "짧은 형식"}, {"long", "긴 형식"}, {"quiet", "평온"}, {"load", "부하"}, {"equal", "같음"}, {"yes", "예"}, {"no", "아니요"},
	{"of {}", "{1}"}, {"{n} of {n}", "{2} 중 {1}"}, {"{n} of {n} {}", "{3} {2} 중 {1}"}, {"idle", "유휴"}, {"{n} idle", "{1} 유휴"}, {"some idle", "일부 유휴"},
	{"no balancer", "밸런서 없음"}, {"{} · not its own", "{1} · 자체 측정 아님"}, {"up to {} s", "최대 {1}초"},
	{"Light", "밝게"}, {"Dark", "어둡게"},
	{"{} B", "{1} B"}, {"{} KiB", "{1} KiB"}, {"{} MiB", "{1} MiB"}, {"{} GiB", "{1} GiB"}, {"{n} ns", "{1} ns"}, {"{n} µs", "{1} µs"}, {"{n} ms", "{1} ms"},
	{"requests/s", "요청/초"}, {"connections/s", "연결/초"}, {"transactions/s", "트랜잭션/초"}, {"packets/s", "패킷/초"}, {"queries/s", "질의/초"},
	{"{} requests/s", "{1} 요청/초"}, {"{} connections/s", "{1} 연결/초"}, {"{} transactions/s", "{1} 트랜잭션/초"}, {"{} queries/s", "{1} 질의/초"},
	{"Requests/s", "요청/초"}, {"Connections/s", "연결/초"}, {"Transactions/s", "트랜잭션/초"}, {"Packets/s", "패킷/초"}, {"Queries/s", "질의/초"}, {"Sessions/s", "세션/초"},
	{"Requests", "요청"}, {"Connections", "연결"}, {"Transactions", "트랜잭션"}, {"Queries", "질의"},
	{"µs/request", "µs/요청"}, {"µs/query", "µs/질의"}, {"µs each", "µs/건"}, {"ms/gigabyte", "ms/GB"}, {"ms/GB", "ms/GB"}, {"bytes", "바이트"}, {"bytes/flow", "바이트/플로"}, {"flows", "플로"}, {"cores", "코어"},
	{"request", "요청"}, {"reply", "응답"}, {"adjust", "조정"}, {"that of {}", "{1}의 값"},
}

// koreanParams are parameters as labels and sentences show them.
var koreanParams = []phrase{
	{"{} concurrent", "동시 연결 {1}"}, {"{n} stream", "스트림 {1}개"}, {"{n} streams", "스트림 {1}개"}, {"{n} request", "요청 {1}건"}, {"{n} requests", "요청 {1}건"},
	{"{} file", "파일 {1}"}, {"{n} s long", "{1}초간"}, {"{n} client", "클라이언트 {1}대"}, {"{n} clients", "클라이언트 {1}대"}, {"{n} server", "서버 {1}대"}, {"{n} servers", "서버 {1}대"},
	{"{n} service", "서비스 {1}개"}, {"{n} services", "서비스 {1}개"}, {"{n} backend", "백엔드 {1}대"}, {"{n} backends", "백엔드 {1}대"},
	{"{n} thread", "스레드 {1}개"}, {"{n} threads", "스레드 {1}개"}, {"{n} worker", "워커 {1}개"}, {"{n} workers", "워커 {1}개"}, {"{n} core", "코어 {1}개"}, {"{n} cores", "코어 {1}개"},
	{"{n} flow", "플로 {1}개"}, {"{n} flows", "플로 {1}개"}, {"{n} repeat", "{1}회 반복"}, {"{n} repeats", "{1}회 반복"}, {"{n} connection", "연결 {1}개"}, {"{n} connections", "연결 {1}개"},
	{"weights {}", "가중치 {1}"}, {"splice {}", "splice {1}"}, {"a flood of {}", "{1} 플러드"}, {"at {} packets/s", "초당 {1} 패킷"}, {"asking every {} ms", "{1}ms마다 요청"},
	{"{} new a second", "초당 새 연결 {1}"}, {"answers within {} s", "{1}초 안의 응답"}, {"with offloads", "오프로드 사용"}, {"without offloads", "오프로드 없음"}, {"generators pinned", "생성기 코어 고정"}, {"generators not pinned", "생성기 코어 고정 없음"},
	{"requests of {n} bytes", "요청 {1}바이트"}, {"responses of {n} bytes", "응답 {1}바이트"}, {"frames of {n} bytes", "프레임 {1}바이트"}, {"beside {}", "{1} 동시"},
	{"{}-tagged", "{1} 태그"}, {"in IPv4", "IPv4 안"}, {"in IPv6", "IPv6 안"}, {"one service", "서비스 하나"}, {"all modes", "모든 모드"}, {"all schedulers", "모든 스케줄러"},
	{"not ours", "대상 아님"}, {"new flow", "새 플로"}, {"known flow", "알려진 플로"}, {"foreign", "대상 아님"}, {"new", "새 플로"}, {"known", "알려진 플로"},
	{"slot not moved", "슬롯 이동 없음"}, {"slot moved, flow pinned", "슬롯 이동, 플로 고정"}, {"slot moved, first packet", "슬롯 이동, 첫 패킷"},
	{"unmoved", "이동 없음"}, {"pinned", "고정"}, {"unpinned", "고정 안 됨"}, {"proven", "검증됨"}, {"unproven", "미검증"},
	{"no flow ends", "끝나는 플로 없음"}, {"half of the flows end", "플로 절반 종료"}, {"dropped behind the balancer", "밸런서 뒤에서 폐기"}, {"answered by the servers", "서버가 응답"},
	{"{}/s offered", "제공률 초당 {1}"}, {"the highest rate without loss, searched for", "손실 없는 최고 속도(탐색)"}, {"all that was offered", "제공된 전부"},
	{"at {}/s", "초당 {1}"}, {"off", "끔"}, {"auto", "자동"}, {"on", "켬"},
}

// koreanColumns are the heads of tables.
var koreanColumns = []phrase{
	{"Subject", "대상"}, {"Load", "부하"}, {"Point", "지점"}, {"Repeats", "반복"}, {"Reason", "이유"}, {"Parameters", "파라미터"}, {"Trials", "시행"}, {"Trial", "시행"}, {"Note", "비고"},
	{"Saturated", "포화"}, {"Mean latency", "평균 지연"}, {"Min latency", "최소 지연"}, {"Mean", "평균"}, {"Max", "최대"}, {"Balancer CPU", "밸런서 CPU"}, {"Failed", "실패"},
	{"Concurrency", "동시 연결"}, {"Streams", "스트림"}, {"Requests asked", "요청 수"}, {"File size", "파일 크기"}, {"Duration", "시간"}, {"Clients", "클라이언트"}, {"Services", "서비스"}, {"Backends", "백엔드"},
	{"Weights", "가중치"}, {"Ended", "종료"}, {"Stage", "단계"}, {"Event", "사건"}, {"What", "내용"}, {"Flood", "플러드"}, {"Beyond", "뒤쪽"}, {"Rate", "속도"}, {"Every", "간격"}, {"New", "새 연결"}, {"Patience", "응답 한도"},
	{"Offloads", "오프로드"}, {"Pinned", "코어 고정"}, {"Threads", "스레드"}, {"Thread", "스레드"}, {"Splice", "Splice"}, {"Scheduler", "스케줄러"}, {"Sync", "동기화"}, {"no sync daemon", "동기화 데몬 없음"}, {"sync daemon", "동기화 데몬"}, {"sync daemon for each packet", "패킷마다 알리는 동기화 데몬"}, {"Upper", "상한"}, {"Lower", "하한"}, {"at most {n} connections a server", "서버당 연결 최대 {1}개"}, {"new ones again below {n}", "{1}개 아래에서 다시 새 연결"}, {"Packets", "패킷"}, {"Change", "변경"}, {"Protocol", "프로토콜"},
	{"Family", "주소 체계"}, {"Outer", "바깥 주소 체계"}, {"Direction", "방향"}, {"Tag", "태그"}, {"Configured", "구성"}, {"Flows", "플로"}, {"Hook", "훅"}, {"Request", "요청"}, {"Response", "응답"}, {"Frame", "프레임"}, {"Beside", "함께"},
	{"× {}", "× {1}"}, {"CPU × {}", "CPU × {1}"}, {"Net × one flow", "순비용 × 플로 하나"}, {"× one service", "× 서비스 하나"}, {"× empty", "× 빈 프로그램"}, {"Most × fewest", "최다 × 최소"}, {"New × known", "새 플로 × 알려진 플로"},
	{"Spread of CPU", "CPU 산포"}, {"Spread of net", "순비용 산포"}, {"Spread of loading", "적재 산포"}, {"Spread of {}", "{1} 산포"}, {"Spread", "산포"}, {"Busiest over idlest", "최다/최소 백엔드"},
	{"Switch", "스위치"}, {"Balancer", "밸런서"}, {"Idle", "유휴"}, {"Retransmits", "재전송"}, {"Throughput", "처리량"}, {"First", "첫 번째"}, {"Second", "두 번째"},
	{"First × {}", "첫 번째 × {1}"}, {"Second × {}", "두 번째 × {1}"}, {"Change of the ratio", "비율 변화"}, {"Change of CPU", "CPU 변화"}, {"apart", "구분됨"}, {"overlaps", "겹침"},
	{"Serves most", "최대 처리"}, {"Costs least CPU", "최소 CPU"}, {"Shortest p99", "최소 p99"}, {"What limited the first", "1위의 한계 요인"},
	{"Method", "방식"}, {"Total Requests", "총 요청"}, {"File Size", "파일 크기"}, {"Requests (sec)", "요청(초당)"}, {"Latency (ms)", "지연(ms)"}, {"Here: {}", "여기: {1}"}, {"proxy", "프록시"},
	{"CPU", "CPU"}, {"Memory", "메모리"}, {"Kernel", "커널"}, {"Programs", "프로그램"}, {"Source", "출처"}, {"Limits", "한도"}, {"Measured", "측정"}, {"Command", "명령"}, {"Machine", "기계"},
}

// koreanDocument is what every report has.
var koreanDocument = []phrase{
	{"Results", "결과"}, {"Verdict", "판정"}, {"Environment", "환경"}, {"The laboratory", "실험실"}, {"How to read this", "읽는 법"}, {"The document's table", "문서의 표"}, {"Published figures", "발표된 수치"},
	{"Which balancer for which load", "어떤 부하에 어떤 밸런서인가"}, {"The best at each point", "지점별 최선"},
	{"L2DSR against a proxy", "L2DSR과 프록시 비교"}, {"Bulk throughput through NAT and proxies", "NAT와 프록시의 대량 전송"}, {"Live connections while backends change", "백엔드가 바뀌는 동안의 연결"}, {"Under a SYN flood", "SYN 플러드 아래"},
	{"Asked of {} under {}, once each: {}?", "{1} 대상, {2} 부하, 각 1회: {3}?"}, {"Asked of {} under {}, {n} times each: {}?", "{1} 대상, {2} 부하, 각 {3}회: {4}?"},
	{"how many requests a second does each serve, how long do its clients wait, and what does the balancer itself cost", "각각 초당 몇 건을 처리하고, 클라이언트는 얼마나 기다리며, 밸런서 자체의 비용은 얼마인가"},
	{"how many nanoseconds does each spend on a packet", "각각 패킷 하나에 몇 나노초를 쓰는가"},
	{"how many transactions a second does each carry, how long does one take, and what does the balancer itself cost", "각각 초당 몇 트랜잭션을 나르고, 하나에 얼마나 걸리며, 밸런서 자체의 비용은 얼마인가"},
	{"how many gigabits a second does each let through", "각각 초당 몇 기가비트를 통과시키는가"},
	{"The run was interrupted before its last trial. What it measured until then is below.", "마지막 시행 전에 중단되었습니다. 그때까지 측정한 것이 아래에 있습니다."},
	{"This is the suite's short form: fewer and shorter trials, so a wider spread.", "스위트의 짧은 형식입니다. 시행이 적고 짧아 산포가 큽니다."},
	{"The run has no trials: there is nothing to judge.", "시행이 없어 판정할 것이 없습니다."},
	{"{}, took {}", "{1}, 소요 {2}"}, {"kernel {}", "커널 {1}"}, {"local ports {n}", "로컬 포트 {1}"}, {"tcp orphans {n}", "TCP 고아 소켓 {1}"}, {"tcp pages {n}", "TCP 메모리 페이지 {1}"}, {"open files {n}", "열린 파일 {1}"},
	{"The best median at each point. Where another one's repeats overlap the best one's, it is named too: this run does not tell them apart.", "지점마다 중앙값이 가장 좋은 것입니다. 반복 범위가 겹치는 것은 함께 적었습니다. 이 실행으로는 구분할 수 없습니다."},
	{"{}; not told apart: {}", "{1}; 구분 안 됨: {2}"}, {"{n} more", "외 {1}개"}, {"{} ({n} {})", "{1} ({2} {3})"},
	{"Points that could not be measured", "측정하지 못한 지점"}, {"These trials were planned, and are in no figure, table or chart above.", "계획되었으나 위의 어떤 수치, 표, 그림에도 들어 있지 않은 시행입니다."},
	{"no reason was recorded", "이유가 기록되지 않음"}, {"Notes on valid trials", "유효한 시행의 비고"}, {"These trials count; a reader should know this of them.", "유효한 시행이지만 알아 둘 점입니다."},
	{"How the saturated part was told", "포화된 부분의 판정 근거"}, {"The figures behind the word, trial by trial.", "시행별 근거 수치입니다."},
	{"all {n}", "전체 {1}"}, {"{}, all {n}", "{1}, 전체 {2}"}, {"{}, repeat {}", "{1}, 반복 {2}"}, {"repeat {n}", "반복 {1}"},
	{"The Markdown and HTML forms also have the tables {}.", "다음 표는 Markdown과 HTML 형식에 있습니다: {1}."},
	{"The Markdown and HTML forms also say how the saturated part was told, trial by trial.", "포화 판정의 시행별 근거는 Markdown과 HTML 형식에 있습니다."},
	{"“{}”", "“{1}”"},
	{"Measured elsewhere, by others, on other machines. Compare shapes, not numbers.", "다른 사람이 다른 곳, 다른 기계에서 측정했습니다. 수치가 아니라 모양을 비교하십시오."},
	{"Measured elsewhere, by others, on other machines; beside it what this run measured at the same point, on this machine. Compare shapes, not numbers.", "다른 사람이 다른 곳, 다른 기계에서 측정했습니다. 옆은 이 실행이 같은 지점에서 이 기계로 측정한 값입니다. 수치가 아니라 모양을 비교하십시오."},
	{"This run measured none of the document's points, so nothing of ours stands beside them.", "이 실행은 문서의 지점을 하나도 측정하지 않아 옆에 놓을 값이 없습니다."},
	{"They are a document's, measured on other machines: shapes compare, numbers do not. Its latency may mean something else, too; ours is what clients waited.", "문서가 다른 기계에서 측정한 값입니다. 모양은 비교할 수 있으나 수치는 아닙니다. 지연의 뜻도 다를 수 있습니다. 우리의 지연은 클라이언트가 실제로 기다린 시간입니다."},
	{"not named; 25 client VMs, 25 web VMs, one balancer VM with up to 24 cores, links under 5 Gbit/s", "기종 미상; 클라이언트 VM 25대, 웹 VM 25대, 최대 24코어 밸런서 VM 1대, 5Gbit/s 미만 링크"},
	{"the proxy was HAProxy 2.2, L2DSR was LVS with direct routing on one core", "프록시는 HAProxy 2.2, L2DSR은 코어 하나의 LVS 직접 라우팅"},
	{"the latency column is about one divided by the requests a second, and not what a client waited", "지연 열은 초당 요청의 역수에 가까우며 클라이언트가 기다린 시간이 아님"},
	{"the load was closed-loop, and the document does not say which part was the limit", "부하는 폐루프였고, 문서는 어느 부분이 한계였는지 말하지 않음"},
	{"{}, compared with {}", "{2} 대비 {1}"}, {"What changed: {}", "변화: {1}"}, {"{} differs: {}, then {}.", "{1} 다름: {2}, 이후 {3}."},
	{"The suite", "스위트"}, {"The form", "형식"}, {"The CPU", "CPU"}, {"The number of cores", "코어 수"}, {"The kernel", "커널"}, {"A run was interrupted before its last trial.", "한 실행이 마지막 시행 전에 중단되었습니다."},
	{"Medians of the first run and of the second. Two runs at different hours meet different machines; the ratios to each run's own baseline are what should agree.", "두 실행의 중앙값입니다. 시간이 다르면 기계 상태도 다르므로, 서로 맞아야 하는 것은 각 실행의 기준선 대비 비율입니다."},
	{"{n} points are in both runs, none with a baseline to hold it against.", "두 실행에 {1}개 지점이 있으나 비교할 기준선이 없습니다."},
	{"of {n} ratios to {}, {n} differ by 10 % or more; the largest difference is {} ({}).", "{2} 대비 비율 {1}개 중 {3}개가 10 % 이상 다름; 가장 큰 차이는 {4} ({5})."},
}
