"""Usual units, the conversions between them, and which of them a column of this name can be measured in."""

import re
from typing import NamedTuple


class Unit(NamedTuple):
    """value here = factor x value elsewhere + offset. of: what is measured; "" for factors that anything may have."""

    here: str
    elsewhere: str
    factor: float
    offset: float = 0.0
    of: str = ""

    @property
    def inverse(self) -> "Unit":
        return Unit(self.elsewhere, self.here, 1 / self.factor, -self.offset / self.factor, self.of)


_OF: dict[str, list[Unit]] = {
    "mass": [Unit("pounds", "kilograms", 2.20462), Unit("grams", "ounces", 28.3495)],
    "length": [
        Unit("centimetres", "inches", 2.54), Unit("feet", "metres", 3.28084), Unit("kilometres", "miles", 1.60934),
    ],
    "pressure": [Unit("mm Hg", "kPa", 7.50062)],
    "energy": [Unit("kilojoules", "kilocalories", 4.184)],
    "speed": [Unit("km/h", "m/s", 3.6)],
    "cholesterol": [Unit("mg/dl", "mmol/l (cholesterol)", 38.67)],
    "glucose": [Unit("mg/dl", "mmol/l (glucose)", 18.016)],
    "creatinine": [Unit("micromol/l", "mg/dl (creatinine)", 88.42)],
    "time": [
        Unit("months", "years", 12), Unit("days", "years", 365.25), Unit("days", "weeks", 7),
        Unit("hours", "days", 24), Unit("minutes", "hours", 60), Unit("seconds", "hours", 3600),
    ],
    "grey": [Unit("0 to 255", "0 to 1", 255)],
    "temperature": [
        Unit("degrees Fahrenheit", "degrees Celsius", 1.8, 32), Unit("kelvins", "degrees Celsius", 1, 273.15),
    ],
    "": [
        Unit("tenths", "wholes", 10), Unit("hundredths (per cent)", "wholes", 100), Unit("thousandths", "wholes", 1000),
        Unit("millionths", "wholes", 1e6),
    ],
}  # fmt: skip
_KNOWN = [u._replace(of=of) for of, units in _OF.items() for u in units]
UNITS = [*_KNOWN, *(u.inverse for u in _KNOWN)]
IN_CHINESE = {  # the units that are not signs
    "pounds": "磅", "kilograms": "千克", "centimetres": "厘米", "inches": "英寸", "feet": "英尺", "metres": "米",
    "kilometres": "公里", "miles": "英里", "grams": "克", "ounces": "盎司", "mm Hg": "毫米汞柱", "kPa": "千帕",
    "kilojoules": "千焦", "kilocalories": "千卡", "mmol/l (cholesterol)": "mmol/l（胆固醇）",
    "mmol/l (glucose)": "mmol/l（葡萄糖）", "micromol/l": "微摩尔/升", "mg/dl (creatinine)": "mg/dl（肌酐）",
    "months": "月", "years": "年", "days": "天", "weeks": "周", "hours": "小时", "minutes": "分钟", "seconds": "秒",
    "0 to 255": "0 到 255", "0 to 1": "0 到 1", "tenths": "十分之一", "wholes": "整数单位",
    "hundredths (per cent)": "百分之一", "thousandths": "千分之一", "millionths": "百万分之一",
    "degrees Fahrenheit": "华氏度", "degrees Celsius": "摄氏度", "kelvins": "开尔文",
}  # fmt: skip

_WORDS = {  # of a column's name: what it measures
    "mass": "kg kgs g gram grams kilogram kilograms lb lbs pound pounds oz ounce ounces mass weight weights wt bw "
    "birthweight bodyweight 体重 重量 质量",
    "length": "cm mm km m inch inches ft feet mile miles metre metres meter meters height ht stature length width "
    "depth distance dist waist hip girth altitude elevation 身高 高度 长度 宽度 距离 腰围",
    "temperature": "t ta temp temps temperature tmp tavg tmin tmax celsius fahrenheit kelvin dewp dewpoint sst "
    "温度 体温 气温 水温",
    "time": "age ages duration days day months month years year weeks hours minutes seconds ms time delay stay los "
    "tenure since 年龄 月龄 时长 天数 时间 住院日",
    "pressure": "pressure pres press bp sbp dbp rsbp trestbps mmhg kpa hpa 血压 收缩压 舒张压 气压 压力",
    "energy": "energy calories kcal kj joules kwh 热量 能量",
    "speed": "speed velocity wind wspm mph kmh 速度 风速 车速",
    "cholesterol": "chol cholesterol ldl hdl tc 胆固醇",
    "glucose": "glucose glu bg sugar bloodsugar fbg 血糖 葡萄糖",
    "creatinine": "creatinine crea creat scr 肌酐",
    "grey": "pixel pixels grey gray brightness intensity 亮度 灰度 像素",
    "money": "income revenue revenues price prices sales sale cost costs salary salaries wage wages turnover fee fees "
    "profit spend spending expense expenses budget usd eur cny rmb gbp dollars euros rent loan balance charge charges "
    "payment payments gdp amount 收入 营收 价格 售价 销售 销量 金额 工资 薪 成本 费用 利润 租金 余额",
    "count": "count counts number num visits visit quantity qty population orders items calls clicks customers beds "
    "次数 数量 人数 人口 订单 客流",
}  # fmt: skip
_MEASURES = {word: of for of, words in _WORDS.items() for word in words.split()}


def measured(column: str) -> set[str]:
    """What a column of this name measures, as far as its words say; empty where they say nothing."""
    parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower())
    found = {_MEASURES[p] for p in parts if p in _MEASURES}
    return found | {of for word, of in _MEASURES.items() if not word.isascii() and word in column}


def units_of(column: str) -> list[Unit]:
    """The conversions that the name does not contradict: all where it says nothing."""
    of = measured(column)
    return [u for u in UNITS if not of or not u.of or u.of in of]
