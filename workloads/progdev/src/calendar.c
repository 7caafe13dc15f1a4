/*
 * Days, dates and times in the calendar of Gregory, before its introduction as well, without a
 * clock and without zones. Days are counted from 1970-01-01.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kit.h"

#define DAY_SECONDS 86400
/* Days from 0000-03-01, where a year of this arithmetic starts, to 1970-01-01. */
#define DAYS_TO_1970 719468
#define DAYS_OF_400_YEARS 146097
#define YEAR_MIN (-9999)
#define YEAR_MAX 9999

static const char *const month_names[] = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December",
};

static const char *const day_names[] = {
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
};

static int64_t floor_divide(int64_t value, int64_t divisor)
{
    int64_t quotient = value / divisor;

    return quotient - (value % divisor < 0);
}

static int64_t floor_modulo(int64_t value, int64_t divisor)
{
    return value - floor_divide(value, divisor) * divisor;
}

bool calendar_is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

int calendar_days_in_month(int year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

    if (month < 1 || month > 12)
        return 0;
    return days[month - 1] + (month == 2 && calendar_is_leap(year));
}

bool calendar_is_date(const struct date *date)
{
    return date->year >= YEAR_MIN && date->year <= YEAR_MAX && date->day >= 1 &&
           date->day <= calendar_days_in_month(date->year, date->month);
}

/* Years start in March, so that the day that only some have is the last one. */
int64_t calendar_to_days(const struct date *date)
{
    int64_t year = date->year - (date->month <= 2);
    int64_t era = floor_divide(year, 400);
    int64_t year_of_era = year - era * 400;
    int64_t month = (date->month + 9) % 12;
    int64_t day_of_year = (153 * month + 2) / 5 + date->day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

    return era * DAYS_OF_400_YEARS + day_of_era - DAYS_TO_1970;
}

struct date calendar_from_days(int64_t days)
{
    int64_t shifted = days + DAYS_TO_1970;
    int64_t era = floor_divide(shifted, DAYS_OF_400_YEARS);
    int64_t day_of_era = shifted - era * DAYS_OF_400_YEARS;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 -
                           day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era -
                          (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    struct date date;

    date.day = (int)(day_of_year - (153 * month + 2) / 5 + 1);
    date.month = (int)(month < 10 ? month + 3 : month - 9);
    date.year = (int)(year_of_era + era * 400 + (date.month <= 2));
    return date;
}

/* From 0 for Monday to 6 for Sunday; 1970-01-01 was a Thursday. */
int calendar_weekday(const struct date *date)
{
    return (int)floor_modulo(calendar_to_days(date) + 3, 7);
}

int calendar_day_of_year(const struct date *date)
{
    struct date first = { date->year, 1, 1 };

    return (int)(calendar_to_days(date) - calendar_to_days(&first)) + 1;
}

/* The week by ISO 8601: the first one has the year's first Thursday. */
int calendar_week(const struct date *date, int *year)
{
    int64_t days = calendar_to_days(date);
    struct date thursday = calendar_from_days(days - calendar_weekday(date) + 3);

    *year = thursday.year;
    return (calendar_day_of_year(&thursday) - 1) / 7 + 1;
}

/* The Sunday of Easter, by the rule of Meeus, Jones and Butcher. */
struct date calendar_easter(int year)
{
    int golden = year % 19, century = year / 100, rest = year % 100;
    int leap_centuries = century / 4, leap_rest = century % 4;
    int moon = (century - (century + 8) / 25 + 1) / 3;
    int epact = (19 * golden + century - leap_centuries - moon + 15) % 30;
    int leap_years = rest / 4, after_leap = rest % 4;
    int weekday = (32 + 2 * leap_rest + 2 * leap_years - epact - after_leap) % 7;
    int correction = (golden + 11 * epact + 22 * weekday) / 451;
    int place = epact + weekday - 7 * correction + 114;
    struct date date;

    date.year = year;
    date.month = place / 31;
    date.day = place % 31 + 1;
    return date;
}

/* The same day of another month; its last one where it is shorter. */
struct date calendar_add_months(const struct date *date, int months)
{
    int64_t month = (int64_t)date->year * 12 + date->month - 1 + months;
    struct date moved;
    int last;

    moved.year = (int)floor_divide(month, 12);
    moved.month = (int)floor_modulo(month, 12) + 1;
    last = calendar_days_in_month(moved.year, moved.month);
    moved.day = date->day < last ? date->day : last;
    return moved;
}

int64_t calendar_to_seconds(const struct date_time *time)
{
    return calendar_to_days(&time->date) * DAY_SECONDS + time->hour * 3600 + time->minute * 60 +
           time->second;
}

struct date_time calendar_from_seconds(int64_t seconds)
{
    int64_t rest = floor_modulo(seconds, DAY_SECONDS);
    struct date_time time;

    time.date = calendar_from_days(floor_divide(seconds, DAY_SECONDS));
    time.hour = (int)(rest / 3600);
    time.minute = (int)(rest / 60 % 60);
    time.second = (int)(rest % 60);
    return time;
}

/* Reads exactly so many digits. */
static bool read_digits(const char **at, int count, int *number)
{
    *number = 0;
    for (; count > 0; count--) {
        if (!isdigit((unsigned char)**at))
            return false;
        *number = *number * 10 + (*(*at)++ - '0');
    }
    return true;
}

static bool skip(const char **at, char character)
{
    if (**at != character)
        return false;
    (*at)++;
    return true;
}

/* Reads 2026-01-31, 2026-01-31T12:30 or 2026-01-31 12:30:59. */
bool calendar_parse(const char *string, struct date_time *time)
{
    bool is_negative = skip(&string, '-');

    memset(time, 0, sizeof(*time));
    if (!read_digits(&string, 4, &time->date.year) || !skip(&string, '-') ||
        !read_digits(&string, 2, &time->date.month) || !skip(&string, '-') ||
        !read_digits(&string, 2, &time->date.day))
        return false;
    if (is_negative)
        time->date.year = -time->date.year;
    if (!calendar_is_date(&time->date))
        return false;
    if (*string == '\0')
        return true;
    if (!skip(&string, 'T') && !skip(&string, ' '))
        return false;
    if (!read_digits(&string, 2, &time->hour) || !skip(&string, ':') ||
        !read_digits(&string, 2, &time->minute))
        return false;
    if (skip(&string, ':') && !read_digits(&string, 2, &time->second))
        return false;
    return *string == '\0' && time->hour < 24 && time->minute < 60 && time->second < 60;
}

/* One field of a format, by its letter, as in strftime(3). */
static bool format_field(const struct date_time *time, char letter, struct text *out)
{
    const struct date *date = &time->date;
    int year, hour = time->hour % 12 == 0 ? 12 : time->hour % 12;

    switch (letter) {
    case 'Y': return text_add_format(out, "%04d", date->year);
    case 'm': return text_add_format(out, "%02d", date->month);
    case 'd': return text_add_format(out, "%02d", date->day);
    case 'e': return text_add_format(out, "%2d", date->day);
    case 'H': return text_add_format(out, "%02d", time->hour);
    case 'I': return text_add_format(out, "%02d", hour);
    case 'M': return text_add_format(out, "%02d", time->minute);
    case 'S': return text_add_format(out, "%02d", time->second);
    case 'p': return text_add_string(out, time->hour < 12 ? "AM" : "PM");
    case 'j': return text_add_format(out, "%03d", calendar_day_of_year(date));
    case 'u': return text_add_format(out, "%d", calendar_weekday(date) + 1);
    case 'V': return text_add_format(out, "%02d", calendar_week(date, &year));
    case 'G':
        calendar_week(date, &year);
        return text_add_format(out, "%04d", year);
    case 'A': return text_add_string(out, day_names[calendar_weekday(date)]);
    case 'a': return text_add(out, day_names[calendar_weekday(date)], 3);
    case 'B': return text_add_string(out, month_names[date->month - 1]);
    case 'b': return text_add(out, month_names[date->month - 1], 3);
    case 's': return text_add_format(out, "%lld", (long long)calendar_to_seconds(time));
    case 'F':
        return text_add_format(out, "%04d-%02d-%02d", date->year, date->month, date->day);
    case 'T':
        return text_add_format(out, "%02d:%02d:%02d", time->hour, time->minute, time->second);
    case '%': return text_add_char(out, '%');
    default: return false;
    }
}

bool calendar_format(const struct date_time *time, const char *format, struct text *out)
{
    for (; *format != '\0'; format++) {
        bool is_field = *format == '%';

        format += is_field;
        if (is_field ? !format_field(time, *format, out) : !text_add_char(out, *format))
            return false;
    }
    return true;
}

/* A month as cal(1) prints it, with weeks from Monday. */
bool calendar_print_month(int year, int month, struct text *out)
{
    struct date date = { year, month, 1 };
    int column = 0, days = calendar_days_in_month(year, month);

    if (days == 0)
        return false;
    text_add_format(out, "%s %d\n", month_names[month - 1], year);
    for (int day = 0; day < 7; day++)
        text_add_format(out, "%s%.2s", day == 0 ? "" : " ", day_names[day]);
    text_add_char(out, '\n');
    for (; column < calendar_weekday(&date); column++)
        text_add_string(out, column == 0 ? "  " : "   ");
    for (; date.day <= days; date.day++, column++) {
        if (column == 7) {
            text_add_char(out, '\n');
            column = 0;
        }
        text_add_format(out, "%s%2d", column == 0 ? "" : " ", date.day);
    }
    return text_add_char(out, '\n');
}

struct unit {
    char letter;
    int64_t seconds;
};

static const struct unit units[] = {
    { 'w', 7 * DAY_SECONDS }, { 'd', DAY_SECONDS }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 },
};

/* Reads 1w2d3h4m5s, in this order, each part at most once. */
bool calendar_parse_duration(const char *string, int64_t *seconds)
{
    size_t unit = 0, count = sizeof(units) / sizeof(units[0]);

    *seconds = 0;
    if (*string == '\0')
        return false;
    while (*string != '\0') {
        char *end;
        long long number;

        if (!isdigit((unsigned char)*string))
            return false;
        number = strtoll(string, &end, 10);
        while (unit < count && units[unit].letter != *end)
            unit++;
        if (unit == count || number > INT32_MAX)
            return false;
        *seconds += number * units[unit++].seconds;
        string = end + 1;
    }
    return true;
}

bool calendar_print_duration(int64_t seconds, struct text *out)
{
    bool is_fine = true, is_empty = true;

    if (seconds < 0) {
        is_fine = text_add_char(out, '-');
        seconds = -seconds;
    }
    for (size_t unit = 0; is_fine && unit < sizeof(units) / sizeof(units[0]); unit++) {
        int64_t number = seconds / units[unit].seconds;

        seconds %= units[unit].seconds;
        if (number == 0)
            continue;
        is_empty = false;
        is_fine = text_add_format(out, "%lld%c", (long long)number, units[unit].letter);
    }
    return is_fine && (!is_empty || text_add_string(out, "0s"));
}

/* Counts the days from one date to another that are neither Saturday nor Sunday, without the
 * second one. */
int64_t calendar_working_days(const struct date *from, const struct date *to)
{
    int64_t start = calendar_to_days(from), days = calendar_to_days(to) - start;
    int64_t working = days / 7 * 5;

    for (int64_t day = days / 7 * 7; day < days; day++) {
        struct date date = calendar_from_days(start + day);

        working += calendar_weekday(&date) < 5;
    }
    return working;
}

/* The n-th such weekday of a month, from 1; from the end if n is below 0. */
bool calendar_nth_weekday(int year, int month, int weekday, int n, struct date *date)
{
    struct date first = { year, month, 1 };
    int days = calendar_days_in_month(year, month), count, place;

    if (days == 0 || weekday < 0 || weekday > 6 || n == 0)
        return false;
    place = (weekday - calendar_weekday(&first) + 7) % 7 + 1;
    count = (days - place) / 7 + 1;
    if (n < 0)
        n += count + 1;
    if (n < 1 || n > count)
        return false;
    *date = first;
    date->day = place + 7 * (n - 1);
    return true;
}

/* Years, months and days between two dates, the first of which is not later. */
bool calendar_age(const struct date *from, const struct date *to, struct date *age)
{
    struct date moved;

    if (calendar_to_days(from) > calendar_to_days(to))
        return false;
    age->month = (to->year - from->year) * 12 + to->month - from->month;
    moved = calendar_add_months(from, age->month);
    if (calendar_to_days(&moved) > calendar_to_days(to))
        moved = calendar_add_months(from, --age->month);
    age->day = (int)(calendar_to_days(to) - calendar_to_days(&moved));
    age->year = age->month / 12;
    age->month %= 12;
    return true;
}

/* The number of a day in the count of Scaliger, at noon. */
int64_t calendar_julian_day(const struct date *date)
{
    return calendar_to_days(date) + 2440588;
}

/* How old the moon is, in tenths of days since it was new, by its mean period. */
int calendar_moon_age(const struct date *date)
{
    /* It was new on 2000-01-06; 29.530589 days, in millionths. */
    static const struct date new_moon = { 2000, 1, 6 };
    int64_t days = calendar_to_days(date) - calendar_to_days(&new_moon);

    return (int)(floor_modulo(days * 1000000, 29530589) / 100000);
}
